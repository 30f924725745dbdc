"""What no measured time can be, over all tables in docs/studies: which reports break it, and which figures of them the
clock of alray before 0.3 decided.

    python -m benchmarks.invariants     lists the reports that break it

A table breaks it where training took fewer seconds than the stages computed on average, which is at most what the
busiest one computed, or where devices are faster than one of them by more than their number.

Before 0.3 the seconds of training, of an epoch and to a target, and the bubble, were those of stage 0. Where stages
stream, it has finished its last mini-batch while later stages still train. So these figures are too small.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import fmean

from alray.counting import counted
from alray.loading.study.points import label_of
from alray.report.invariants import TOLERANCE, impossible_speed_up
from alray.studies.records import TrialRecord
from alray.studies.scaling import ScaledPoint
from alray.studies.table import PointRow
from benchmarks.committed import Report, reports

_SPEED_UPS = {"step_time_s": "step time", "training_s": "training time", "seconds_to_target": "time to target"}


def breaks(report: Report) -> list[str]:
    """In which way a report breaks the invariant, in sentences; a sound one has none."""
    found = []
    short = [record for record in report.results.records if _is_too_short(record)]
    if short:
        ended = sum(record.times is not None for record in report.results.records)
        found.append(
            f"In {len(short)} of {counted(ended, 'trial')} training took fewer seconds than the stages computed on "
            "average."
        )
    return [*found, *_speed_ups(report)]


def measured_by_stage_0(report: Report, record: TrialRecord) -> bool:
    """Whether the seconds of a trial were those of stage 0, while later stages still trained."""
    summary = record.summary
    if not report.is_of_earlier_clock or summary is None:
        return False
    return summary.stages > 1 and summary.schedule == "streamed"


def _is_too_short(record: TrialRecord) -> bool:
    times, summary = record.times, record.summary
    if times is None or summary is None or times.training_s is None or times.forward_s is None:
        return False
    computing_s = (times.forward_s + (times.backward_s or 0.0) + (times.update_s or 0.0)) / summary.stages
    return times.training_s < summary.steps * computing_s * (1.0 - TOLERANCE)


def _speed_ups(report: Report) -> Iterator[str]:
    """The largest impossible speed-up by each figure of time."""
    scaling = report.results.scaling
    impossible: dict[str, list[tuple[float, float, ScaledPoint]]] = defaultdict(list)
    for points in scaling.series.values() if scaling is not None else ():
        for point in points:
            for name, words in _SPEED_UPS.items():
                if point.base is None:
                    continue
                first_s, then_s = _a_mini_batch(point.base.row, name), _a_mini_batch(point.row, name)
                if first_s is None or then_s is None:
                    continue
                speed_up = point.gain(first_s, then_s).speed_up
                if impossible_speed_up(speed_up, point.more) is not None:
                    impossible[name].append((speed_up / point.more, speed_up, point))
    for name, found in impossible.items():
        _, speed_up, point = max(found, key=lambda each: each[0])
        sentence = (
            f"By the {_SPEED_UPS[name]}, `{label_of(point.row.point)}` is {speed_up:.2f} times as fast on "
            f"{point.more:g} times the devices"
        )
        yield f"{sentence}, and so are {len(found) - 1} further points too fast." if len(found) > 1 else f"{sentence}."


def _a_mini_batch(row: PointRow, name: str) -> float | None:
    """Seconds of a mini-batch by a figure, as a mean over seeds."""
    values = []
    for record in row.best:
        summary, times, reached = record.summary, record.times, record.reached
        if summary is None:
            return None
        if name == "step_time_s":
            values.append(summary.step_time_s)
        elif name == "training_s":
            seconds = times.training_s if times is not None else None
            values.append(None if seconds is None else seconds / summary.steps)
        else:
            seconds = reached.training_s if reached is not None else None
            values.append(None if seconds is None or reached is None else seconds / reached.step)
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def main() -> None:
    for report in reports():
        for sentence in breaks(report):
            print(f"{report.name}: {sentence}")  # noqa: T201


if __name__ == "__main__":
    main()
