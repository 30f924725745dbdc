"""`run.trackers`: programs outside that show a run while it is running."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from alray.config.sections.kind import Kind, PartSection
from alray.config.sections.own_code import Name, OfPackage, OwnCode
from alray.config.sections.section import refusal


class TrackerSection(PartSection):
    """The keys that every tracker's section has."""

    kind: str
    """Which tracker."""


class OwnTracker(OwnCode, TrackerSection, extra="allow"):
    """A tracker of the user; the keys that are not listed here go to its constructor."""

    kind: Annotated[Name, OfPackage("alray.trackers")]
    """The class, as `python:package.module.Class`, or the name that an installed package gives it. It derives from
    `alray.Tracker`."""


TRACKERS = Kind("trackers", TrackerSection, OwnTracker)
"""All trackers."""
Tracker = Annotated[TrackerSection, TRACKERS]


def _each_once(trackers: tuple[Tracker, ...]) -> tuple[Tracker, ...]:
    kinds = [tracker.kind for tracker in trackers]
    twice = next((kind for kind in kinds if kinds.count(kind) > 1), None)
    if twice is not None:
        raise refusal(f"`{twice}` is there twice", "name each tracker once")
    return trackers


Trackers = Annotated[tuple[Tracker, ...], AfterValidator(_each_once), Field(strict=False)]
