"""A comparison of several runs, as values. Runs that differ only in their seed form one group, with mean and spread.

The accuracies of a run are those of the evaluation with the best validation accuracy (`best` in its summary); without a
validation set those of the last evaluation. The test set chooses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from alray.config.loading.yaml_text import read_yaml
from alray.config.sections.own_code import OBJECT
from alray.core.errors import RequestError, SpecError
from alray.core.metric import Metric
from alray.core.run_folder.records import EvaluationRecord, Figures, Record, StepRecord
from alray.core.storage.location import Location
from alray.report.environments import differing, has_other_data
from alray.report.flat import flat
from alray.report.folder import RunFolder, read_run
from alray.report.same_weights import Weights
from alray.report.single_step import SingleStep, single_step
from alray.report.spread import Spread, spread
from alray.report.summary import figures_of
from alray.report.training_time import TrainingTime

ComparedSplit = Literal["validation", "test"]
_OF_HASH = 8
"""Characters of a hash that tell objects apart."""


def _spec_of(text: str, file: str) -> dict[str, Any]:
    """The keys of a run's spec. Raises SpecError if it is damaged."""
    spec = read_yaml(text, file)[0]
    wanted = {"name": str, "data": dict, "model": dict}
    whole = isinstance(spec, dict) and all(isinstance(spec.get(key), kind) for key, kind in wanted.items())
    if not whole or not isinstance(spec.get("seed", 0), int):
        raise SpecError("this is not the spec of a run", file=file, hint="restore it from a copy of the run folder")
    known: dict[str, Any] = spec
    return known


class ComparedRun:
    """One run of a comparison, read from its folder."""

    def __init__(self, run_dir: Location) -> None:
        """Raises CheckpointError if the folder is not a run folder, SpecError if its spec.yaml is damaged."""
        folder = read_run(run_dir)
        self.spec = _spec_of(folder.spec_text, str(run_dir / "spec.yaml"))
        self.folder: RunFolder = folder
        self.tell_object("model", "from", "architecture_sha256")  # each seed may draw other weights
        self.tell_object("data", "source", "given_sha256")
        self.figures: Figures = figures_of(folder.records, folder.plan, folder.task_metric)
        self._ended_s = max((record.time_s for record in folder.effective_records), default=0.0)
        self.training_time = TrainingTime(folder.effective_records)
        # Many runs may be compared. So each keeps only what a comparison shows, a part of a long run's records.
        kept: list[Record] = [each for each in folder.effective_records if not isinstance(each, StepRecord)]
        self.folder = replace(folder, records=[], effective_records=kept)

    def tell_object(self, section: str, key: str, kept: str) -> None:
        """Put the hash of an object of a Python program behind its name in the spec, which is that of all of them.

        Args:
            kept: the key of `environment.json` with the hash.
        """
        name, sha256 = self.spec[section].get(key), self.environment.get(kept)
        if isinstance(name, str) and name.startswith(OBJECT) and sha256 is not None:
            known = f"{name} {sha256.rpartition(':')[2][:_OF_HASH]}"
            self.spec = {**self.spec, section: {**self.spec[section], key: known}}

    @property
    def status(self) -> str:
        """The status of the summary; `unfinished` if there is none: the run is still running, or it was killed."""
        return self.folder.summary.status if self.folder.summary else "unfinished"

    @property
    def weights_sha256(self) -> str | None:
        """The hash of the final weights; None while the run is running, and if it failed."""
        return self.folder.summary.weights_sha256 if self.folder.summary else None

    @property
    def engine(self) -> str:
        """`ray`, `ray_train` or `inline`; after a resume with another one both, such as `ray, inline`. Times measured
        with different engines cannot be compared."""
        last = str(self.environment.get("engine", "ray"))
        return ", ".join(dict.fromkeys(each.engine or last for each in self.figures.attempts)) or last

    @property
    def environment(self) -> dict[str, Any]:
        """Where it ran last; empty if that is not known."""
        return self.folder.environment or {}

    @property
    def data(self) -> str:
        """A text that is equal for runs that should have the same data. A seed may choose the validation set."""
        # The identity of data has the labels, which are another task's too.
        return json.dumps([self.seed, self.spec["data"], self.spec.get("task")], sort_keys=True)

    @property
    def seed(self) -> int:
        return int(self.spec.get("seed", 0))

    @cached_property
    def evaluations(self) -> list[EvaluationRecord]:
        """See `RunFolder.evaluations`."""
        return self.folder.evaluations

    @property
    def chosen(self) -> EvaluationRecord | None:
        """The evaluation with the best validation accuracy; the last one without a validation set. The end of a run may
        evaluate the same weights again, and then measures more."""
        best = self.figures.best
        if best is None:
            return self.evaluations[-1] if self.evaluations else None
        return next(record for record in reversed(self.evaluations) if record.step == best.step)

    @property
    def duration_s(self) -> float:
        """Wall time in seconds, evaluations and checkpoints included."""
        if self.folder.summary:
            return self.folder.summary.duration_s
        return self._ended_s

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

    def score(self, split: ComparedSplit, depth: int | None = None) -> float | None:
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

    def as_json(self) -> dict[str, Any]:
        record = self.chosen
        return {
            "run_dir": str(self.folder.path),
            "name": self.folder.name,
            "status": self.status,
            "seed": self.seed,
            "steps": self.figures.steps,
            "engine": self.engine,
            "weights_sha256": self.weights_sha256,
            "chosen": None if record is None else record.model_dump(mode="json", include=_CHOSEN),
            "metric": self.figures.metric,
            self.figures.metric: self.figures.scores.model_dump(mode="json"),
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

    @property
    def weights(self) -> Weights | None:
        """The final weights of the runs; None where one is not known."""
        known = [(run.seed, run.weights_sha256) for run in self.counted if run.weights_sha256 is not None]
        return tuple(sorted(known)) if len(known) == len(self.counted) else None

    def spread(self, figure: Callable[[ComparedRun], float | None]) -> Spread | None:
        """The spread of a figure over the runs that have it; None if no run has it."""
        return spread(figure(run) for run in self.counted)

    def score(self, split: ComparedSplit, depth: int | None = None) -> Spread | None:
        return self.spread(lambda run: run.score(split, depth))

    @property
    def depths(self) -> list[int]:
        """The depths of the routes that were evaluated."""
        return sorted({entry.depth for run in self.counted if run.chosen for entry in run.chosen.per_depth})

    @property
    def single_step(self) -> SingleStep:
        """The single step of the first run. A mean over runs would describe no real mini-batch."""
        return single_step(self.first.folder.effective_records, self.first.folder.plan)

    def as_json(self) -> dict[str, Any]:
        figures: dict[str, Callable[[ComparedRun], float | None]] = {
            "validation": lambda run: run.score("validation"),
            "test": lambda run: run.score("test"),
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
                    "validation": _json_of(self.score("validation", depth)),
                    "test": _json_of(self.score("test", depth)),
                }
                for depth in self.depths
            ],
            "single_step": self.single_step.as_json(),
            "runs": [run.as_json() for run in self.runs],
        }


@dataclass(frozen=True)
class ComparedRuns:
    """Groups of runs in the order in which they were given, and the keys in which their specs differ."""

    groups: tuple[Group, ...]
    differences: dict[str, tuple[str, ...]]  # key of the spec -> its value in each group

    @property
    def metric(self) -> Metric:
        """The metric of the runs' task."""
        return self.groups[0].first.figures.measures

    @property
    def notes(self) -> list[str]:
        """Remarks that a reader of the figures needs."""
        found = []
        engines = list(dict.fromkeys(group.first.engine for group in self.groups))
        if len(engines) > 1:
            ran = [[group.label for group in self.groups if group.first.engine == engine] for engine in engines]
            engines_text = "; ".join(f"{engine}: {', '.join(of)}" for engine, of in zip(engines, ran, strict=True))
            found.append(f"different engines, so accuracies can be compared, and times cannot ({engines_text})")
        runs = [run for group in self.groups for run in group.counted]
        if machines := differing(run.environment for run in runs):
            found.append(f"different machines or versions, so times cannot be compared ({machines})")
        if has_other_data((run.data, run.environment) for run in runs):
            found.append("runs that name the same data had other data")
        for group in self.groups:
            found += [f"{group.label}, seed {run.seed}: {doubt}" for run in group.runs for doubt in run.figures.doubts]
        for group in self.groups:
            seeds = [run.seed for run in group.runs]
            if len(set(seeds)) < len(seeds):
                found.append(f"{group.label}: two runs have the same seed, so the spread is too small")
            if any(run.chosen is not None and run.figures.best is None for run in group.counted):
                found.append(
                    f"{group.label}: no validation {self.metric.title}, so the last evaluation is used, not the best"
                )
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


def compare_runs(run_dirs: Sequence[Location]) -> ComparedRuns:
    """Read the run folders and group the runs. Raises CheckpointError if one of them is not a run folder, and
    RequestError if their metrics differ."""
    runs = [ComparedRun(run_dir) for run_dir in run_dirs]
    groups = _of_one_identity(runs)
    metrics = list(dict.fromkeys(run.figures.measures.title for runs in groups for run in runs if run.evaluations))
    if len(metrics) > 1:
        raise RequestError(
            f"these runs have different metrics: {', '.join(metrics)}",
            key="RUN",
            hint="compare runs of one task with one metric",
        )
    labels = _labels([runs[0] for runs in groups])
    return ComparedRuns(
        tuple(Group(label, tuple(runs)) for label, runs in zip(labels, groups, strict=True)),
        _differences([runs[0].spec for runs in groups]),
    )


def _labels(runs: Sequence[ComparedRun]) -> list[str]:
    """A unique label for each run: the name of its spec, and its folder where others have this name. A folder that
    begins with the name says both."""
    names, paths = [str(run.spec["name"]) for run in runs], [run.folder.path.name for run in runs]
    if len(set(paths)) < len(paths):
        paths = [str(run.folder.path) for run in runs]
    longer = [
        path if path.startswith(name) and path not in names else f"{name}, {path}"
        for name, path in zip(names, paths, strict=True)
    ]
    return [name if names.count(name) == 1 else both for name, both in zip(names, longer, strict=True)]


def _of_one_identity(runs: Sequence[ComparedRun]) -> list[list[ComparedRun]]:
    grouped: dict[str, list[ComparedRun]] = {}
    for run in runs:
        grouped.setdefault(run.identity, []).append(run)
    return list(grouped.values())


def _json_of(value: Spread | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


_ABSENT = "–"


def _differences(specs: Sequence[dict[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Every key except `seed` whose values differ, with its value in each spec as one line of text."""
    of_specs = [{key: _text(value) for key, value in flat(spec)} for spec in specs]
    keys = [key for key in dict.fromkeys(key for values in of_specs for key in values) if key != "seed"]
    found = {key: tuple(values.get(key, _ABSENT) for values in of_specs) for key in keys}
    return {key: values for key, values in found.items() if len(set(values)) > 1}


def _text(value: Any) -> str:
    return " ".join(value.splitlines()) if isinstance(value, str) else json.dumps(value)
