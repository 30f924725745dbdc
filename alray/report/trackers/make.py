"""Makes the trackers that a spec names. Nothing is started."""

from __future__ import annotations

from alray.config.made import class_of, making
from alray.config.sections.spec import Spec
from alray.config.sections.trackers import TRACKERS, TrackerSection
from alray.config.user_code import UserCode
from alray.report.trackers.tracker import Tracker


def make_trackers(spec: Spec, code: UserCode) -> dict[str, Tracker]:
    """The trackers of a spec by kind.

    Raises SpecError if a class cannot be loaded or made.
    """
    return {
        section.kind: _make(section, code, key=f"run.trackers[{index}]")
        for index, section in enumerate(spec.run.trackers)
    }


def _make(section: TrackerSection, code: UserCode, key: str) -> Tracker:
    kind: type[Tracker] = class_of(TRACKERS, section, Tracker, code, key=key)
    called = "it is called as Class(**fields) with the further keys of its entry in `run.trackers`"
    with making(f"tracker `{section.kind}`", called, key=key, kind=kind):
        return kind(**section.fields)
