"""Speed-up and efficiency along the number of devices, computed from the step times of the points of a study.

Strong scaling: the network is the same for every number of devices. Weak scaling: it grows with them, so that each
device has as many components. The records tell which of the two it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from alray.report.compare import Spread
from alray.spec.study.points import label_of, series_label, value_text
from alray.study.table import Row

Devices = Literal["stages", "replicas"]
DEVICE_AXES = ("pipeline.stages", "replicas.count")


@dataclass(frozen=True)
class Place:
    """A point with a measured step time, in its series."""

    row: Row
    devices: int
    components: int  # of the network
    step_time_s: Spread
    predicted_s: float | None


class Gain(NamedTuple):
    """What more devices bring.

    speed_up: of a mini-batch; with weak scaling it counts that a mini-batch passes more components. efficiency: the
    speed-up for each of the devices that there are more; 1 is ideal.
    """

    speed_up: float
    efficiency: float


@dataclass(frozen=True)
class Scaling:
    """The points of a study along the number of devices. series: label -> its places, from the fewest devices on."""

    devices: Devices
    weak: bool
    series: dict[str, tuple[Place, ...]]

    def gain(self, first_s: float, then_s: float, more: float) -> Gain:
        """From step times in seconds on the fewest devices and on `more` times as many."""
        speed_up = first_s / then_s * (more if self.weak else 1.0)
        return Gain(speed_up, speed_up / more)


def scaling_of(rows: Sequence[Row]) -> Scaling | None:
    """The scaling along the stages, otherwise along the replicas; None if the study has neither.

    The devices are counted along an axis that alone decides their number. Without such an axis, points of the same
    method and schedule form a series.
    """
    timed = [row for row in rows if row.figures["step_time_s"] is not None and row.summary is not None]
    for devices in ("stages", "replicas"):
        series = _series(timed, devices)
        if any(len(places) > 1 for places in series.values()):
            return Scaling(devices, all(map(_grows, series.values())), series)
    return None


def with_gains(rows: Sequence[Row]) -> list[Row]:
    """The rows with speed-up and efficiency, where the study has a scaling."""
    found = list(rows)
    scaling = scaling_of(rows)
    for places in scaling.series.values() if scaling is not None else ():
        assert scaling is not None
        first = places[0]
        for place in places:
            gain = scaling.gain(first.step_time_s.mean, place.step_time_s.mean, place.devices / first.devices)
            found[rows.index(place.row)] = replace(place.row, **gain._asdict())
    return found


def device_efficiency(rows: Sequence[Row]) -> dict[str, float]:
    """Samples a second and device (stages times replicas), over those on the fewest devices with otherwise the same
    values. By the label of the point; 1 is ideal."""
    found: dict[str, float] = {}
    least: dict[str, float] = {}
    for row in sorted(rows, key=_devices):
        speed = row.figures["samples_per_s"]
        if speed is not None:
            each = speed.mean / _devices(row)
            others = series_label(row.point, DEVICE_AXES)
            found[label_of(row.point)] = each / least.setdefault(others, each)
    return found


def _devices(row: Row) -> int:
    return row.summary.stages * row.summary.replicas if row.summary is not None else 1


def _series(rows: Sequence[Row], devices: Devices) -> dict[str, tuple[Place, ...]]:
    """The places of each series. Empty if a series has two points with as many devices, or if no axis decides their
    number and a series has one point only."""
    axes = [axis for axis in (rows[0].point if rows else ()) if _decides(axis, rows, devices)]
    found: dict[str, list[Place]] = {}
    for row in rows:
        summary, time, predicted = row.summary, row.figures["step_time_s"], row.figures["predicted_step_time_s"]
        assert summary is not None and time is not None
        label = series_label(row.point, axes) if axes else f"{summary.method}, {summary.schedule}"
        place = Place(
            row, getattr(summary, devices), sum(summary.partition), time, predicted.mean if predicted else None
        )
        found.setdefault(label, []).append(place)
    one_each = all(len({place.devices for place in places}) == len(places) for places in found.values())
    if not one_each or (not axes and any(len(places) < 2 for places in found.values())):
        return {}
    return {label: tuple(sorted(places, key=lambda place: place.devices)) for label, places in found.items()}


def _decides(axis: str, rows: Sequence[Row], devices: Devices) -> bool:
    """Whether each value of an axis stands for a number of devices of its own."""
    counts: dict[str, set[int]] = {}
    for row in rows:
        counts.setdefault(value_text(row.point[axis]), set()).add(getattr(row.summary, devices))
    found = [next(iter(each)) for each in counts.values() if len(each) == 1]
    return len(found) == len(counts) == len(set(found)) > 1


def _grows(places: Sequence[Place]) -> bool:
    """Whether the network grows with the number of devices. One more component, such as an embedding, may be the same
    for all of them."""
    sizes = [place.components for place in places]
    return len(places) > 1 and all(lower < upper for lower, upper in itertools.pairwise(sizes))
