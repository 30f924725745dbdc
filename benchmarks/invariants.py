"""What no measured time can be, over all tables in docs/studies: which reports break it, and which figures of them the
clock of alray before 0.3 decided.

    python -m benchmarks.invariants     lists the reports that break it

Before 0.3 the seconds of training, of an epoch and to a target, and the bubble, were those of stage 0. Where stages
stream, it has finished its last mini-batch while later stages still train. So these figures are too small.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import fmean

from alray.config.study.points import label_of
from alray.core.counting import counted
from alray.report.invariants import TOLERANCE, impossible_speed_up
from alray.studies.records import TrialRecord
from alray.studies.results import Results
from alray.studies.scaling import ScaledPoint
from alray.studies.table import PointRow
from benchmarks.committed import Report, reports

_BY = {"step_time_s": "step time", "training_s": "training time", "seconds_to_target": "time to target"}


def broken_by(results: Results) -> list[str]:
    """In which way the times of a study cannot be true, in sentences; a sound study has none."""
    timed = [record for record in results.records if record.times is not None]
    short = [record for record in timed if _is_too_short(record)]
    found = []
    if short:
        found.append(
            f"In {len(short)} of {counted(len(timed), 'trial')} training took fewer seconds than its stages computed: "
            "do not rely on the seconds of training of this study."
        )
    return [*found, *_speed_ups(results)]


def _is_too_short(record: TrialRecord) -> bool:
    """Whether a trial trained for fewer seconds than its stages computed on average, which the busiest one exceeds, or
    its report says so."""
    times, summary = record.times, record.summary
    if times is None or summary is None:
        return False
    parts = (times.forward_s, times.backward_s, times.update_s)
    known = [part for part in parts if part is not None]
    if times.training_s is None or len(known) < len(parts):
        return bool(summary.doubts)
    computing_s = summary.steps * sum(known) / summary.stages
    return bool(summary.doubts) or times.training_s < computing_s * (1.0 - TOLERANCE)


def _speed_ups(results: Results) -> Iterator[str]:
    """The largest impossible speed-up by each figure of time."""
    found: dict[str, list[tuple[float, ScaledPoint]]] = defaultdict(list)
    for points in results.scaling.series.values() if results.scaling is not None else ():
        for point in points:
            for name in _BY if point.base is not None else ():
                assert point.base is not None
                first_s, then_s = _a_mini_batch(point.base.row, name), _a_mini_batch(point.row, name)
                if first_s is not None and then_s is not None:
                    speed_up = point.gain(first_s, then_s).speed_up
                    if impossible_speed_up(speed_up, point.more) is not None:
                        found[name].append((speed_up, point))
    for name, each in found.items():
        speed_up, point = max(each, key=lambda one: one[0] / one[1].more)
        sentence = f"By the {_BY[name]}, `{label_of(point.row.point)}` is {speed_up:.2f} times as fast on "
        sentence += f"{point.more:g} times the devices, which cannot be"
        yield f"{sentence}; {counted(len(each) - 1, 'further point')} too." if len(each) > 1 else f"{sentence}."


def _a_mini_batch(row: PointRow, name: str) -> float | None:
    """Seconds of a mini-batch by a figure of time, as a mean over seeds; None where one lacks it."""
    values = [_seconds(record, name) for record in row.best]
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _seconds(record: TrialRecord, name: str) -> float | None:
    summary, times, reached = record.summary, record.times, record.reached
    if summary is None:
        return None
    if name == "step_time_s":
        return summary.step_time_s
    if name == "training_s":
        return times.training_s / summary.steps if times is not None and times.training_s is not None else None
    return reached.training_s / reached.step if reached is not None and reached.training_s is not None else None


def measured_by_stage_0(report: Report, record: TrialRecord) -> bool:
    """Whether the seconds of a trial were those of stage 0, while later stages still trained."""
    summary = record.summary
    if not report.is_of_earlier_clock or summary is None:
        return False
    return summary.stages > 1 and summary.schedule == "streamed"


def main() -> None:
    for report in reports():
        for sentence in broken_by(report.results):
            print(f"{report.name}: {sentence}")  # noqa: T201


if __name__ == "__main__":
    main()
