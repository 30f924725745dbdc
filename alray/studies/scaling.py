"""Speed-up and efficiency along the number of devices, computed from the step times of the points of a study.

The work of a mini-batch is its samples times the components that they pass. The speed-up is the work a second, over
that of the point on the fewest devices with otherwise the same values. The efficiency is the speed-up divided
by the ratio of the devices. So a network that grows by a quarter on two devices has a speed-up of 1.25 if its step
takes as long, and an efficiency of 0.625.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from alray.config.study.points import parts_of, series_label, value_text
from alray.report.spread import Spread, ratio
from alray.studies.table import PointRow

Along = Literal["stages", "replicas"]
DEVICE_AXES = ("pipeline.stages", "replicas.count")


class Gain(NamedTuple):
    """The gain from more devices: see the top of this file."""

    speed_up: float
    efficiency: float


@dataclass(frozen=True)
class ScaledPoint:
    """A point with a measured step time, in its series.

    Attributes:
        devices: stages times replicas.
        more: how many times those of the base.
        work: of a mini-batch, relative to the base.
        base: the step time of the point on the fewest devices with otherwise the same values; None: it is this point.
    """

    row: PointRow
    devices: int
    step_time_s: Spread
    predicted_s: float | None
    work: float
    more: float
    base: ScaledPoint | None

    def gain(self, first_s: float, then_s: float) -> Gain:
        """From step times in seconds of the base and of this point, which may be predicted."""
        speed_up = self.work * first_s / then_s
        return Gain(speed_up, speed_up / self.more)

    @property
    def speed_up(self) -> Spread:
        """1 without a deviation for the base."""
        if self.base is None:
            return Spread(1.0, None, self.step_time_s.runs, self.step_time_s.missing)
        return ratio(self.base.step_time_s, self.step_time_s, self.work)

    @property
    def efficiency(self) -> Spread:
        speed_up = self.speed_up
        deviation = speed_up.deviation / self.more if speed_up.deviation is not None else None
        return replace(speed_up, mean=speed_up.mean / self.more, deviation=deviation)

    @property
    def predicted(self) -> Gain | None:
        """The gain that the plan expects."""
        first_s = (self.base or self).predicted_s
        return None if first_s is None or self.predicted_s is None else self.gain(first_s, self.predicted_s)


@dataclass(frozen=True)
class Scaling:
    """The points of a study along the number of devices.

    Attributes:
        series: label -> its points, from the fewest devices on.
        devices: what is counted, in words.
        kind: strong: the work of a mini-batch is the same on every number of devices; weak: each device has the same
            work; growing: neither.
    """

    devices: Literal["stages", "replicas", "devices"]
    kind: Literal["strong", "weak", "growing"]
    series: dict[str, tuple[ScaledPoint, ...]]


def scaling_of(rows: Sequence[PointRow]) -> Scaling | None:
    """The scaling along the stages, otherwise along the replicas; None if the study has neither.

    A series is along an axis that alone decides how many there are. Without such an axis, points of the same method and
    schedule form a series.
    """
    timed = [row for row in rows if row.figures["step_time_s"] is not None and row.summary is not None]
    along: Along
    for along in ("stages", "replicas"):
        axes = [axis for axis in (timed[0].point if timed else ()) if _decides(axis, timed, along)]
        series = _series(timed, axes, along)
        if any(len(each) > 1 for each in series.values()):
            points = _scaled(series, axes)
            return Scaling(_counted(timed), _kind(points), points)
    return None


def with_gains(rows: Sequence[PointRow], scaling: Scaling | None) -> list[PointRow]:
    """The rows with speed-up and efficiency, where the study has a scaling."""
    found = list(rows)
    for points in scaling.series.values() if scaling is not None else ():
        for point in points:
            found[rows.index(point.row)] = replace(point.row, speed_up=point.speed_up, efficiency=point.efficiency)
    return found


def _devices(row: PointRow) -> int:
    assert row.summary is not None
    return row.summary.stages * row.summary.replicas


def _counted(rows: Sequence[PointRow]) -> Literal["stages", "replicas", "devices"]:
    if all(_devices(row) == row.summary.stages for row in rows if row.summary is not None):
        return "stages"
    return "replicas" if all(row.summary.stages == 1 for row in rows if row.summary is not None) else "devices"


def _series(rows: Sequence[PointRow], axes: Sequence[str], along: Along) -> dict[str, list[PointRow]]:
    """The points of each series, from the fewest devices on. Empty if a series has two points with as many of them, or
    if no axis decides their number and a series has one point only."""
    found: dict[str, list[PointRow]] = {}
    for row in rows:
        assert row.summary is not None
        label = series_label(row.point, axes) if axes else f"{row.summary.method}, {row.summary.schedule}"
        found.setdefault(label, []).append(row)
    one_each = all(len({getattr(row.summary, along) for row in each}) == len(each) for each in found.values())
    if not one_each or (not axes and any(len(each) < 2 for each in found.values())):
        return {}
    return {label: sorted(each, key=_devices) for label, each in found.items()}


def _scaled(series: dict[str, list[PointRow]], axes: Sequence[str]) -> dict[str, tuple[ScaledPoint, ...]]:
    """The series with the base of each point, which may be in another series: as many stages, but fewer replicas."""
    groups: dict[str, list[PointRow]] = {}
    for label, rows in series.items():
        for row in rows:
            groups.setdefault(series_label(row.point, (*axes, *DEVICE_AXES)) if axes else label, []).append(row)
    made: dict[int, ScaledPoint] = {}
    for group in groups.values():
        works = _works(group)
        order = sorted(range(len(group)), key=lambda index: _devices(group[index]))
        base: ScaledPoint | None = None
        for index in order:
            row, first = group[index], group[order[0]]
            time, predicted = row.figures["step_time_s"], row.figures["predicted_step_time_s"]
            assert time is not None
            work, more = works[index] / works[order[0]], _devices(row) / _devices(first)
            predicted_s = predicted.mean if predicted is not None else None
            made[id(row)] = ScaledPoint(row, _devices(row), time, predicted_s, work, more, base)
            base = base or made[id(row)]
    return {label: tuple(made[id(row)] for row in rows) for label, rows in series.items()}


def _works(rows: Sequence[PointRow]) -> list[float]:
    """The work of a mini-batch at each point: samples times components.

    One component that the study does not repeat, where it repeats the others as often as there are devices, is no work:
    an embedding below the layers of weak scaling.
    """
    samples = [_samples(row) for row in rows]
    components = [sum(row.summary.partition) for row in rows if row.summary is not None]
    repeated = [count for row in rows if (count := _repeats(row)) is not None]
    each_device = {count / _devices(row) for row, count in zip(rows, repeated, strict=False)}
    others = {count - times for count, times in zip(components, repeated, strict=False)}
    if len(repeated) == len(rows) and len(each_device) == 1 and others == {1}:
        components = repeated
    return [float(m * n) for m, n in zip(samples, components, strict=True)]


def _samples(row: PointRow) -> int:
    """Samples of a mini-batch, over all replicas. A seed that reached the target within its warm-up has no times."""
    summaries = (record.summary for record in row.best)
    return next(
        round(each.samples_per_s * each.step_time_s)
        for each in summaries
        if each is not None and each.samples_per_s is not None and each.step_time_s is not None
    )


def _repeats(row: PointRow) -> int | None:
    """How often the one key `model.components.N.repeat` that the study sets repeats its component; None if it does not
    set exactly one."""
    found = []
    for override in row.best[0].overrides:
        key, _, text = override.partition("=")
        match parts_of(key):
            case ("model", "components", _, "repeat"):
                found.append(json.loads(text))
    return found[0] if len(found) == 1 and isinstance(found[0], int) else None


def _decides(axis: str, rows: Sequence[PointRow], along: Along) -> bool:
    """Whether each value of an axis stands for a different number of stages or replicas."""
    counts: dict[str, set[int]] = {}
    for row in rows:
        counts.setdefault(value_text(row.point[axis]), set()).add(getattr(row.summary, along))
    found = [next(iter(each)) for each in counts.values() if len(each) == 1]
    return len(found) == len(counts) == len(set(found)) > 1


def _kind(series: dict[str, tuple[ScaledPoint, ...]]) -> Literal["strong", "weak", "growing"]:
    points = [point for each in series.values() for point in each]
    if _are_equal(point.work for point in points):
        return "strong"
    return "weak" if _are_equal(point.work / point.more for point in points) else "growing"


def _are_equal(values: Iterable[float]) -> bool:
    found = list(values)
    return all(math.isclose(value, found[0]) for value in found)
