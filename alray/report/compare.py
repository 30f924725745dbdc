"""Several runs side by side, as values: those that differ by their seed alone are one group, with mean and spread.

Of each run the evaluation chosen on validation counts (`best` of its summary); the test set chooses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from alray.records import EvaluationRecord
from alray.report.compare_labels import differing_keys, labels_of
from alray.report.folder import RunFolder, read_run
from alray.report.single_step import SingleStep, single_step
from alray.report.summary import Figures, figures_of
from alray.spec.yaml_text import read_yaml

Split = Literal["validation", "test"]


@dataclass(frozen=True)
class Spread:
    """A figure over the runs of a group: its mean, and the sample standard deviation (None of a single run)."""

    mean: float
    deviation: float | None
    runs: int


class ComparedRun:
    """One run folder, read, with what is compared."""

    def __init__(self, run_dir: Path) -> None:
        """Raises CheckpointError where the folder is no run, or SpecError where its spec.yaml is damaged."""
        self.folder: RunFolder = read_run(run_dir)
        self.spec: dict[str, Any] = read_yaml(self.folder.spec_text, str(run_dir / "spec.yaml"))[0]
        self.figures: Figures = figures_of(self.folder.records, self.folder.plan)

    @property
    def status(self) -> str:
        """`unfinished` where no summary was written: the run goes on, or it was killed."""
        return self.folder.summary.status if self.folder.summary else "unfinished"

    @property
    def engine(self) -> str:
        """`ray` or `inline`; times of the one are not times of the other."""
        return str((self.folder.environment or {}).get("engine", "ray"))

    @property
    def seed(self) -> int:
        return int(self.spec.get("seed", 0))

    @cached_property
    def evaluations(self) -> list[EvaluationRecord]:
        return [record for record in self.folder.kept if isinstance(record, EvaluationRecord)]

    @property
    def chosen(self) -> EvaluationRecord | None:
        """The evaluation with the best validation accuracy; the last one where there is no validation set."""
        best = self.figures.best
        if best is None:
            return self.evaluations[-1] if self.evaluations else None
        return next(record for record in self.evaluations if record.step == best.step)

    @property
    def duration_s(self) -> float:
        """Wall time, evaluations and checkpoints included."""
        if self.folder.summary:
            return self.folder.summary.duration_s
        return max((record.time_s for record in self.folder.kept), default=0.0)

    @property
    def parameters(self) -> int:
        return sum(component.parameters for component in self.folder.plan.costs.components)

    @property
    def effective_parameters(self) -> int | None:
        """Those that inference at full depth uses; None in a plan that did not count them."""
        costs = self.folder.plan.costs
        return costs.route_parameters(len(costs.components))

    @property
    def affiliate_parameters(self) -> int | None:
        """Those that only training uses."""
        effective = self.effective_parameters
        return None if effective is None else self.parameters - effective

    @property
    def peak_memory_bytes(self) -> int | None:
        """Of the largest stage."""
        return max((peak for peak in self.figures.peak_memory_bytes if peak is not None), default=None)

    def accuracy(self, split: Split, depth: int | None = None) -> float | None:
        """At the evaluation that counts: of the whole network, or of the route of this depth."""
        record = self.chosen
        if record is None:
            return None
        if depth is None:
            value: float | None = getattr(record, split)
            return value
        return next((getattr(entry, split) for entry in record.per_depth if entry.depth == depth), None)

    @property
    def identity(self) -> str:
        """The same for runs that differ by their seed alone."""
        return json.dumps([{**self.spec, "seed": None}, self.engine], sort_keys=True)

    @property
    def is_text(self) -> bool:
        return self.spec["data"].get("text") is not None

    def as_json(self) -> dict[str, Any]:
        record = self.chosen
        return {
            "run_dir": str(self.folder.path),
            "name": self.folder.name,
            "status": self.status,
            "seed": self.seed,
            "steps": self.figures.steps,
            "chosen": None if record is None else record.model_dump(mode="json", include=_CHOSEN),
            "accuracy": self.figures.accuracy.model_dump(mode="json"),
            "duration_s": self.duration_s,
        }


_CHOSEN = {"step", "epoch", "samples", "time_s", "validation", "test", "per_depth"}


@dataclass(frozen=True)
class Group:
    """Runs that differ by their seed alone, in the order they were given."""

    label: str
    runs: tuple[ComparedRun, ...]

    @property
    def counted(self) -> tuple[ComparedRun, ...]:
        """The runs its figures are of: those that finished, or all where none did."""
        return tuple(run for run in self.runs if run.status == "finished") or self.runs

    @property
    def first(self) -> ComparedRun:
        return self.counted[0]

    @property
    def method(self) -> str:
        return self.first.figures.method

    @property
    def status(self) -> str:
        """`finished`, `failed`, ..., with numbers where the runs' differ."""
        found = [run.status for run in self.runs]
        if len(set(found)) == 1:
            return found[0]
        return ", ".join(f"{found.count(status)} {status}" for status in sorted(set(found)))

    def spread(self, figure: Callable[[ComparedRun], float | None]) -> Spread | None:
        """Of a figure over the runs that have it; None where none has."""
        return spread(figure(run) for run in self.counted)

    def accuracy(self, split: Split, depth: int | None = None) -> Spread | None:
        return self.spread(lambda run: run.accuracy(split, depth))

    @property
    def depths(self) -> list[int]:
        """Depths of the routes that were evaluated."""
        return sorted({entry.depth for run in self.counted if run.chosen for entry in run.chosen.per_depth})

    @property
    def single_step(self) -> SingleStep:
        """Of its first run: a mean over runs would be of no mini-batch."""
        return single_step(self.first.folder.kept, self.first.folder.plan)

    @property
    def has_bag_of_embeddings(self) -> bool:
        """Whether its route of depth 1 is a classifier of the mean of word vectors."""
        blocks = [entry["block"] for entry in self.first.spec["model"]["components"]]
        return self.first.is_text and blocks[0] == "embedding" and 1 in self.depths

    def as_json(self) -> dict[str, Any]:
        figures: dict[str, Callable[[ComparedRun], float | None]] = {
            "validation": lambda run: run.accuracy("validation"),
            "test": lambda run: run.accuracy("test"),
            "step_time_s": lambda run: run.figures.step_time_s,
            "samples_per_s": lambda run: run.figures.samples_per_s,
            "bubble": lambda run: run.figures.bubble,
            "peak_memory_bytes": lambda run: run.peak_memory_bytes,
            "duration_s": lambda run: run.duration_s,
        }
        return {
            "label": self.label,
            "method": self.method,
            "schedule": self.first.figures.schedule,
            "stages": self.first.figures.stages,
            "engine": self.first.engine,
            "status": self.status,
            "parameters": self.first.parameters,
            "effective_parameters": self.first.effective_parameters,
            "affiliate_parameters": self.first.affiliate_parameters,
            **{name: _json_of(self.spread(figure)) for name, figure in figures.items()},
            "per_depth": [
                {
                    "depth": depth,
                    "validation": _json_of(self.accuracy("validation", depth)),
                    "test": _json_of(self.accuracy("test", depth)),
                }
                for depth in self.depths
            ],
            "bag_of_embeddings": _json_of(self.accuracy("test", 1)) if self.has_bag_of_embeddings else None,
            "single_step": self.single_step.as_json(),
            "runs": [run.as_json() for run in self.runs],
        }


@dataclass(frozen=True)
class Comparison:
    """Groups of runs in the order they were given, and the keys of their specs that differ."""

    groups: tuple[Group, ...]
    differences: dict[str, tuple[str, ...]]  # key of the spec: its value in each group

    @property
    def notes(self) -> list[str]:
        """What must be said beside the figures."""
        found = []
        for group in self.groups:
            seeds = [run.seed for run in group.runs]
            if len(set(seeds)) < len(seeds):
                found.append(f"{group.label}: a seed is there more than once, so the spread is too small")
            if any(run.chosen is not None and run.figures.best is None for run in group.counted):
                found.append(f"{group.label}: no validation set, so its last evaluation counts, not its best")
            if group.first.is_text and not group.has_bag_of_embeddings:
                found.append(f"{group.label}: no bag-of-embeddings line, for it has {_why_none(group)}")
        return found

    @property
    def split(self) -> Split:
        """The set that is shown where there is room for one: test, where every run that was evaluated has it."""
        evaluated = [run.chosen for group in self.groups for run in group.counted if run.chosen]
        return "test" if all(record.test is not None for record in evaluated) else "validation"

    def as_json(self) -> dict[str, Any]:
        return {
            "groups": [group.as_json() for group in self.groups],
            "differences": {key: list(values) for key, values in self.differences.items()},
            "notes": self.notes,
        }


def compare_runs(run_dirs: Sequence[Path]) -> Comparison:
    """Read these run folders and put them side by side. Raises CheckpointError where one is none."""
    grouped: dict[str, list[ComparedRun]] = {}
    for run_dir in run_dirs:
        run = ComparedRun(run_dir)
        grouped.setdefault(run.identity, []).append(run)
    groups = list(grouped.values())
    specs = [runs[0].spec for runs in groups]
    labels = labels_of(specs, [runs[0].engine for runs in groups])
    return Comparison(
        tuple(Group(label, tuple(runs)) for label, runs in zip(labels, groups, strict=True)), differing_keys(specs)
    )


def spread(values: Iterable[float | None]) -> Spread | None:
    """Mean and sample standard deviation of those that were measured."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(fmean(known), stdev(known) if len(known) > 1 else None, len(known))


def _why_none(group: Group) -> str:
    if not group.depths:
        return "no evaluation"
    if 1 not in group.depths:
        return "one route, the whole network (train its embedding component alone for one)"
    return "no `embedding` as its first component"


def _json_of(value: Spread | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)
