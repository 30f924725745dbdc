"""Makes the trackers that a spec names. Nothing is started."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

from alray.config.sections.own_code import OwnCode
from alray.config.sections.spec import Spec
from alray.config.sections.trackers import TrackerSection
from alray.config.user_code import FAULTS_OF_USER_CODE, UserCode
from alray.core.errors import SpecError
from alray.report.trackers.tracker import Tracker


def make_trackers(spec: Spec, code: UserCode) -> dict[str, Tracker]:
    """The trackers of a spec by kind.

    Raises SpecError if a library is not installed, or if a class of the user's own cannot be loaded or made.
    """
    return {
        section.kind: _make(section, code, key=f"run.trackers[{index}]")
        for index, section in enumerate(spec.run.trackers)
    }


def _make(section: TrackerSection, code: UserCode, key: str) -> Tracker:
    if section.library is not None:
        found = find_spec(section.library)
        if found is None or found.origin is None:  # a folder of this name, such as the one that W&B makes, is no module
            raise SpecError(
                f"the tracker `{section.kind}` needs the library `{section.library}`, which is not installed",
                key=key,
                hint=f"pip install 'alray[{section.library}]'",
            )
    if not isinstance(section, OwnCode):
        module, name = section.implementation.split(":")
        built_in: Tracker = getattr(importlib.import_module(module), name)(**section.fields)
        return built_in
    kind = code(section.kind)
    if not (isinstance(kind, type) and issubclass(kind, Tracker)):
        raise SpecError(
            f"`{section.kind}` is not a subclass of alray.report.trackers.tracker.Tracker",
            key=key,
            hint="derive it from that class; its docstring says what to define",
        )
    try:
        return kind(**section.fields)
    except FAULTS_OF_USER_CODE as error:
        raise SpecError(
            f"tracker `{section.kind}` cannot be made: {type(error).__name__}: {error}",
            key=key,
            hint="it is called as Class(**fields) with the further keys of its entry in `run.trackers`",
        ) from error
