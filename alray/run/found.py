"""What an engine finds out about the devices of stages before anything runs on them."""

from __future__ import annotations

from dataclasses import dataclass

ALIKE = 0.1
"""Devices whose speeds differ by less count as alike: two measurements of one device do, too."""


@dataclass(frozen=True)
class Found:
    """The devices that stages were given."""

    stage_speed: tuple[float, ...] = ()
    """Of each stage's device, relative to the one the costs were taken on; (): all alike."""
    cores: int | None = None
    """Processors that all stages share; None: as on this machine."""


def settled_speeds(speeds: list[float]) -> tuple[float, ...]:
    """Speeds with those near 1 taken for 1; () where that is all of them."""
    settled = tuple(1.0 if abs(speed - 1.0) < ALIKE else speed for speed in speeds)
    return () if set(settled) == {1.0} else settled
