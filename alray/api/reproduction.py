"""Doing a run again as it was recorded: does it end in the same weights, and where do the two part?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from alray.core.errors import CheckpointError
from alray.core.run_folder.records import (
    EvaluationRecord,
    Record,
    StepRecord,
    effective,
    model_of,
    read,
    read_environment,
    read_summary,
)
from alray.core.run_folder.store import checkpoint_folder, data_of
from alray.core.storage.location import Location, location_of
from alray.orchestrate import run_spec
from alray.report.folder import read_plan
from alray.runtime.observer import Observer, StopRequests
from alray.runtime.options import Finished, Options
from alray.runtime.runner.resume import Resumed
from alray.runtime.stage.weights_hash import weights_sha256


@dataclass(frozen=True)
class Parting:
    """The first evaluation that differs: after how many mini-batches, and by name each value of the metric then and
    now."""

    step: int
    epoch: float
    scores: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Reproduction:
    """A run and the same run done again.

    Attributes:
        steps: mini-batches, after which the weights are compared.
        evaluations: how many were compared.
        parted_losses: the first mini-batch whose losses differ; None if none does.
        environment: what differs of machine and libraries.
    """

    recorded: str
    run_dir: str
    steps: int
    weights_sha256: tuple[str, str]
    evaluations: int
    parted: Parting | None
    parted_losses: int | None
    environment: dict[str, tuple[Any, Any]]

    @property
    def same(self) -> bool:
        """Whether the weights and all evaluations are the same."""
        return self.parted is None and len(set(self.weights_sha256)) == 1

    def as_json(self) -> dict[str, Any]:
        return {"same": self.same, **asdict(self)}


class _Recorded(NamedTuple):
    """The outcome of a run: mini-batches and hash of its last weights, whether it finished, and ran in one process."""

    steps: int
    sha256: str
    finished: bool
    inline: bool


def reproduce_run(
    recorded: Location,
    overrides: list[str],
    options: Options,
    observer: Observer,
    interrupts: StopRequests,
    *,
    inline: bool | None = None,
) -> tuple[Finished, Reproduction | None]:
    """Do a run again, from its `spec.yaml` and its `code/`, up to its last weights, and compare the two.

    The reproduction is None if the new run failed or was interrupted before that.

    Raises CheckpointError if the run has no weights or damaged ones, and SpecError if an override would make it another
    run.

    Args:
        overrides: another layout on devices, which keeps the mathematics.
        inline: None: as the run, on Ray where an address is given.
    """
    again = Resumed.open(recorded, overrides, allow_change=False, again=True)
    again.require_whole_checkpoint()
    before = _recorded(again)
    made = Options(
        inline=before.inline and options.address is None if inline is None else inline,
        alone=options.alone,
        address=options.address,
        run_dir=options.run_dir,
        allow_code=options.allow_code,
        code=again.code(allow=options.allow_code, objects=options.objects, note=observer.note),
        data=data_of(again.manifest),
        model_sha256=model_of(recorded),
        standardised_as=again.run_dir,
        stop_after=None if before.finished else before.steps,
    )
    for change in (read_environment(again.run_dir) or {}).get("changed") or ():
        observer.note(f"a resume changed the recorded run: {change}; its weights may not come out again")
    with again.locations.locating():
        finished = run_spec(again.spec, [], made, observer, interrupts)
    now = finished.summary
    if now.status == "failed" or now.steps < before.steps or now.weights_sha256 is None:
        return finished, None
    old, new = (_effective_records(folder, before.steps) for folder in (again.run_dir, location_of(now.run_dir)))
    pairs = list(_evaluations(old, new))
    return finished, Reproduction(
        recorded=str(again.run_dir),
        run_dir=now.run_dir,
        steps=before.steps,
        weights_sha256=(before.sha256, now.weights_sha256),
        evaluations=len(pairs),
        parted=next((parted for parted in map(_parting, pairs) if parted.scores), None),
        parted_losses=_parted_losses(old, new),
        environment=_differences(*(_environment(folder) for folder in (again.run_dir, location_of(now.run_dir)))),
    )


def _recorded(again: Resumed) -> _Recorded:
    """The last weights of a run: those of its last checkpoint, or of its summary if the checkpoint was deleted."""
    summary, manifest = read_summary(again.run_dir), again.manifest
    inline = _environment(again.run_dir).get("engine") == "inline"
    if manifest is not None:
        step = manifest["step"]
        sha256 = weights_sha256(checkpoint_folder(again.run_dir, step), len(read_plan(again.run_dir).costs.components))
        whole = summary is not None and summary.status == "finished" and summary.steps == step
        return _Recorded(step, sha256, whole, inline)
    if summary is None or summary.weights_sha256 is None:
        raise CheckpointError(
            "this run has no weights to compare with: it has neither a checkpoint nor a hash in its summary",
            file=str(again.run_dir),
            hint="name a run that wrote a checkpoint",
        )
    return _Recorded(summary.steps, summary.weights_sha256, summary.status == "finished", inline)


def _effective_records(run_dir: Location, steps: int) -> list[Record]:
    """The records of the first mini-batches, without lost work."""
    return [record for record in effective(read(run_dir / "records.jsonl")) if record.step <= steps]


def _evaluations(old: Iterable[Record], new: Iterable[Record]) -> Iterator[tuple[EvaluationRecord, EvaluationRecord]]:
    """The evaluations that both runs made after the same number of mini-batches by the same metric, in order."""
    then, now = (
        {(record.step, record.metric): record for record in records if isinstance(record, EvaluationRecord)}
        for records in (old, new)
    )
    yield from ((then[made], now[made]) for made in sorted(then.keys() & now.keys()))


def _parting(pair: tuple[EvaluationRecord, EvaluationRecord]) -> Parting:
    """How two evaluations differ, among the values that both measured."""
    then, now = (_scores(record) for record in pair)
    both = {name: (then[name], now[name]) for name in then if name in now}
    parted = {
        name: scores for name, scores in both.items() if len(set(scores)) > 1 and not all(map(math.isnan, scores))
    }
    return Parting(pair[0].step, pair[0].epoch, parted)


def _scores(record: EvaluationRecord) -> dict[str, float]:
    """The metric of the whole network and of each depth, by name, where it was measured."""
    named = {name: getattr(record, name) for name in ("train", "validation", "test")}
    for entry in record.per_depth:
        named |= {f"{name} at depth {entry.depth}": getattr(entry, name) for name in ("train", "validation", "test")}
    return {name: value for name, value in named.items() if value is not None}


def _parted_losses(old: Iterable[Record], new: Iterable[Record]) -> int | None:
    """The first mini-batch whose losses differ, of those that both runs recorded one by one or as equal means."""
    now = {(record.step, record.mini_batches): record.losses for record in new if isinstance(record, StepRecord)}
    for record in old:
        if isinstance(record, StepRecord):
            losses = now.get((record.step, record.mini_batches))
            if losses is not None and losses != record.losses:
                return record.step
    return None


def _environment(run_dir: Location) -> dict[str, Any]:
    """The parts of `environment.json` that may change a result, a name for each: machine, versions, engine."""
    environment = read_environment(run_dir) or {}
    names = ("alray", "python", "torch", "platform", "device", "cores", "engine", "data_sha256")
    packages = {name: version for name, version in (environment.get("packages") or {}).items() if name not in names}
    brought_by = environment.get("brought_by") or {}
    return {name: environment[name] for name in names if name in environment} | packages | brought_by


def _differences(then: dict[str, Any], now: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The differences."""
    return {name: (then.get(name), now.get(name)) for name in {**then, **now} if then.get(name) != now.get(name)}
