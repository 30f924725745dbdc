"""Times of a study that cannot be true: the sentences about them that its report shows."""

from __future__ import annotations

from collections.abc import Iterator

from alray.config.study.points import label_of
from alray.report.invariants import impossible_speed_up, impossible_time
from alray.report.spread import ratio
from alray.studies.records import TrialRecord
from alray.studies.results import Results


def impossible_times(results: Results) -> list[str]:
    """What breaks a bound of `alray.report.invariants`: trials, and points beside the one on the fewest devices."""
    found = [sentence for record in results.records for sentence in _of_trial(record)]
    return [*found, *_of_points(results)]


def _of_trial(record: TrialRecord) -> Iterator[str]:
    summary, times = record.summary, record.times
    if summary is None:
        return
    label = f"trial {record.number} ({label_of(record.point) or 'the base'}, seed {record.seed})"
    for doubt in summary.doubts:
        yield f"{label}: {doubt}"
    if times is None or times.training_s is None or summary.doubts:
        return
    parts = (times.forward_s, times.backward_s, times.update_s)
    if all(part is not None for part in parts):
        # The parts are sums over the stages, and the busiest stage computes at least the mean of all.
        of_stage_s = sum(part for part in parts if part is not None) / summary.stages
        sentence = impossible_time(times.training_s, summary.steps * of_stage_s, None, label)
        if sentence is not None:
            yield sentence


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
