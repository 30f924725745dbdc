"""Times of a study that cannot be relied on: the sentences about them that its report shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from alray.config.study.points import label_of
from alray.core.counting import counted
from alray.report.invariants import impossible_speed_up
from alray.report.spread import ratio
from alray.studies.records import TrialRecord
from alray.studies.results import Results


def impossible_times(results: Results) -> list[str]:
    """What breaks a bound of `alray.report.invariants`: trials, and points beside the one on the fewest devices.

    Whether a trial trained for less time than its stages computed, its own run decides from the mini-batches of which
    both are known. The averages of `Times` are of a part of them, and say nothing of the others."""
    return [*_of_trials(results.records), *_of_points(results)]


def _of_trials(records: Sequence[TrialRecord]) -> Iterator[str]:
    """The doubts of trials. One that several have, as those of one measurement of the components, is told once."""
    trials: dict[str, list[TrialRecord]] = {}
    for record in records:
        for doubt in record.summary.doubts if record.summary is not None else ():
            trials.setdefault(doubt, []).append(record)
    for doubt, (first, *more) in trials.items():
        others = f" and {counted(len(more), 'other trial')}" if more else ""
        yield f"trial {first.number} ({label_of(first.point) or 'the base'}, seed {first.seed}){others}: {doubt}"


def _of_points(results: Results) -> Iterator[str]:
    points = [point for series in results.scaling.series.values() for point in series] if results.scaling else []
    for point in points:
        if point.base is None:
            continue
        label = f"{label_of(point.row.point)}, beside {label_of(point.base.row.point)}"
        sentence = impossible_speed_up(point.speed_up.mean, point.more, label)
        first, then = point.base.row.figures.get("epoch_s"), point.row.figures.get("epoch_s")
        if sentence is None and first is not None and then is not None:
            samples = point.work * _steps_an_epoch(point.row.best[0]) / _steps_an_epoch(point.base.row.best[0])
            sentence = impossible_speed_up(ratio(first, then, samples).mean, point.more, f"an epoch at {label}")
        if sentence is not None:
            yield sentence


def _steps_an_epoch(record: TrialRecord) -> float:
    summary = record.summary
    return summary.steps / summary.epochs if summary is not None and summary.epochs else 1.0
