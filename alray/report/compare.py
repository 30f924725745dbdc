"""A comparison of several runs, as values. Runs that differ only in their seed form one group, with mean and spread.

The accuracies of a run are those of the evaluation with the best validation accuracy (`best` in its summary). The test
set chooses nothing.
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
from alray.report.folder import RunFolder, read_run
from alray.report.single_step import SingleStep, single_step
from alray.report.summary import Figures, figures_of
from alray.spec.yaml_text import read_yaml

ComparedSplit = Literal["validation", "test"]

_FIRST = ("name", "method.kind", "pipeline.schedule", "pipeline.stages")
"""Keys of a spec that labels use before any other key."""
_LAST = ("version", "run.", "resources.", "data.")
"""Keys that are seldom the reason for a comparison."""
_LONGEST = 60
_ABSENT = "–"


@dataclass(frozen=True)
class Spread:
    """A figure over the runs of a group: its mean and its sample standard deviation (None for a single run)."""

    mean: float
    deviation: float | None
    runs: int


class ComparedRun:
    """One run of a comparison, read from its folder."""

    def __init__(self, run_dir: Path) -> None:
        """Raises CheckpointError if the folder is not a run folder, SpecError if its spec.yaml is damaged."""
        self.folder: RunFolder = read_run(run_dir)
        self.spec: dict[str, Any] = read_yaml(self.folder.spec_text, str(run_dir / "spec.yaml"))[0]
        self.figures: Figures = figures_of(self.folder.records, self.folder.plan)

    @property
    def status(self) -> str:
        """The status of the summary; `unfinished` if there is none: the run is still going on, or it was killed."""
        return self.folder.summary.status if self.folder.summary else "unfinished"

    @property
    def engine(self) -> str:
        """`ray`, `ray_train` or `inline`. Times measured with different engines cannot be compared."""
        return str((self.folder.environment or {}).get("engine", "ray"))

    @property
    def seed(self) -> int:
        return int(self.spec.get("seed", 0))

    @cached_property
    def evaluations(self) -> list[EvaluationRecord]:
        return [record for record in self.folder.kept if isinstance(record, EvaluationRecord)]

    @property
    def chosen(self) -> EvaluationRecord | None:
        """The evaluation with the best validation accuracy; without a validation set the last evaluation."""
        best = self.figures.best
        if best is None:
            return self.evaluations[-1] if self.evaluations else None
        return next(record for record in self.evaluations if record.step == best.step)

    @property
    def duration_s(self) -> float:
        """Wall time in seconds, evaluations and checkpoints included."""
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
        """The number of parameters that only training uses."""
        effective = self.effective_parameters
        return None if effective is None else self.parameters - effective

    @property
    def peak_memory_bytes(self) -> int | None:
        """The highest peak of any stage."""
        return max((peak for peak in self.figures.peak_memory_bytes if peak is not None), default=None)

    def accuracy(self, split: ComparedSplit, depth: int | None = None) -> float | None:
        """The accuracy at the `chosen` evaluation: of the whole network, or of the route of this depth."""
        record = self.chosen
        if record is None:
            return None
        if depth is None:
            value: float | None = getattr(record, split)
            return value
        return next((getattr(entry, split) for entry in record.per_depth if entry.depth == depth), None)

    @property
    def identity(self) -> str:
        """A text that is equal for runs that differ only in their seed."""
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
    """Runs that differ only in their seed, in the order in which they were given."""

    label: str
    runs: tuple[ComparedRun, ...]

    @property
    def counted(self) -> tuple[ComparedRun, ...]:
        """The runs that the figures are computed from: the finished ones, or all if none finished."""
        return tuple(run for run in self.runs if run.status == "finished") or self.runs

    @property
    def first(self) -> ComparedRun:
        return self.counted[0]

    @property
    def method(self) -> str:
        return self.first.figures.method

    @property
    def status(self) -> str:
        """`finished`, `failed`, ...; with counts if the runs differ, such as `1 failed, 2 finished`."""
        found = [run.status for run in self.runs]
        if len(set(found)) == 1:
            return found[0]
        return ", ".join(f"{found.count(status)} {status}" for status in sorted(set(found)))

    def spread(self, figure: Callable[[ComparedRun], float | None]) -> Spread | None:
        """The spread of a figure over the runs that have it; None if no run has it."""
        return spread(figure(run) for run in self.counted)

    def accuracy(self, split: ComparedSplit, depth: int | None = None) -> Spread | None:
        return self.spread(lambda run: run.accuracy(split, depth))

    @property
    def depths(self) -> list[int]:
        """The depths of the routes that were evaluated."""
        return sorted({entry.depth for run in self.counted if run.chosen for entry in run.chosen.per_depth})

    @property
    def single_step(self) -> SingleStep:
        """The single step of the first run. A mean over runs would describe no real mini-batch."""
        return single_step(self.first.folder.kept, self.first.folder.plan)

    @property
    def has_bag_of_embeddings(self) -> bool:
        """Whether the route of depth 1 classifies by the mean of word vectors alone."""
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
    """Groups of runs in the order in which they were given, and the keys in which their specs differ."""

    groups: tuple[Group, ...]
    differences: dict[str, tuple[str, ...]]  # key of the spec -> its value in each group

    @property
    def notes(self) -> list[str]:
        """Remarks that a reader of the figures needs."""
        found = []
        for group in self.groups:
            seeds = [run.seed for run in group.runs]
            if len(set(seeds)) < len(seeds):
                found.append(f"{group.label}: two runs have the same seed, so the spread is too small")
            if any(run.chosen is not None and run.figures.best is None for run in group.counted):
                found.append(f"{group.label}: no validation set, so the last evaluation is used instead of the best")
            if group.first.is_text and not group.has_bag_of_embeddings:
                found.append(f"{group.label}: no line for the bag of embeddings, because {_why_none(group)}")
        return found

    @property
    def split(self) -> ComparedSplit:
        """The set to show where there is room for only one: test if every evaluated run has it, else validation."""
        evaluated = [run.chosen for group in self.groups for run in group.counted if run.chosen]
        return "test" if all(record.test is not None for record in evaluated) else "validation"

    def as_json(self) -> dict[str, Any]:
        return {
            "groups": [group.as_json() for group in self.groups],
            "differences": {key: list(values) for key, values in self.differences.items()},
            "notes": self.notes,
        }


def compare_runs(run_dirs: Sequence[Path]) -> Comparison:
    """Read the run folders and group the runs. Raises CheckpointError if one of them is not a run folder."""
    grouped: dict[str, list[ComparedRun]] = {}
    for run_dir in run_dirs:
        run = ComparedRun(run_dir)
        grouped.setdefault(run.identity, []).append(run)
    groups = list(grouped.values())
    specs = [runs[0].spec for runs in groups]
    labels = _labels(specs, [runs[0].engine for runs in groups])
    return Comparison(
        tuple(Group(label, tuple(runs)) for label, runs in zip(labels, groups, strict=True)), _differences(specs)
    )


def spread(values: Iterable[float | None]) -> Spread | None:
    """Mean and sample standard deviation of the values that are not None; None if all are."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(fmean(known), stdev(known) if len(known) > 1 else None, len(known))


def _why_none(group: Group) -> str:
    if not group.depths:
        return "it has no evaluation"
    if 1 not in group.depths:
        return "its only route is the whole network (to compare, train the embedding component alone)"
    return "its first component is not `embedding`"


def _json_of(value: Spread | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


def _differences(specs: Sequence[dict[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Every key except `seed` whose values differ, with its value in each spec as one short line of text."""
    flat = [_flattened(spec) for spec in specs]
    keys = [key for key in dict.fromkeys(key for values in flat for key in values) if key != "seed"]
    found = {key: tuple(values.get(key, _ABSENT) for values in flat) for key in sorted(keys, key=_rank)}
    return {key: tuple(map(_short, values)) for key, values in found.items() if len(set(values)) > 1}


def _labels(specs: Sequence[dict[str, Any]], engines: Sequence[str]) -> list[str]:
    """A unique label for each spec: its name, and the fewest values that make the labels differ."""
    labels = [str(spec["name"]) for spec in specs]
    for key, values in _differences(specs).items():
        if len(set(labels)) == len(labels):
            break
        separates = len(set(zip(labels, values, strict=True))) > len(set(labels))
        if separates and key != "name":
            labels = [f"{label}, {_named(key, value)}" for label, value in zip(labels, values, strict=True)]
    if len(set(labels)) < len(labels):
        labels = [f"{label}, {engine}" for label, engine in zip(labels, engines, strict=True)]
    if len(set(labels)) < len(labels):  # the specs differ in the middle of a long value
        labels = [f"{label}, number {number}" for number, label in enumerate(labels, start=1)]
    return labels


def _named(key: str, value: str) -> str:
    if key in ("method.kind", "pipeline.schedule"):
        return value.replace("_", " ")
    return f"{key.rpartition('.')[2]} {value}"


def _rank(key: str) -> tuple[int, str]:
    if key in _FIRST:
        return _FIRST.index(key), key
    return len(_FIRST) + key.startswith(_LAST), key


def _flattened(spec: dict[str, Any], before: str = "") -> dict[str, str]:
    """Every value that is not a section, by its full key."""
    values: dict[str, str] = {}
    for key, value in spec.items():
        if isinstance(value, dict):
            values |= _flattened(value, f"{before}{key}.")
        elif key == "components":
            values[f"{before}{key}"] = " ".join(_component(entry) for entry in value)
        else:
            values[f"{before}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return values


def _component(entry: dict[str, Any]) -> str:
    fields = [f"{key}={json.dumps(value)}" for key, value in entry.items() if key not in ("block", "repeat")]
    times = f"{entry['repeat']}x" if entry.get("repeat", 1) != 1 else ""
    return f"{times}{entry['block']}({', '.join(fields)})"


def _short(text: str) -> str:
    """A long text without its middle, because long values often differ at their ends."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2 - 1]}…{text[-_LONGEST // 2 :]}"
