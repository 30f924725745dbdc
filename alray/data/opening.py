"""From the `source` of a spec to the object that opens it."""

from __future__ import annotations

from typing import cast

from alray.config.made import Load, code_of
from alray.config.sections.data import SOURCES, DataSection, OwnData
from alray.config.sections.own_code import OwnCode
from alray.config.sections.task import TASKS, TaskSection
from alray.data.python_source import OwnObject, PythonSource, PythonTextSource
from alray.data.source import Source, TextSource


def make_source(section: DataSection, load: Load, task: TaskSection | None = None) -> Source | TextSource:
    """Make the source that a spec names.

    Args:
        load: loads a class of the user.
        task: what its labels are for; None: classes.
    """
    found = code_of(SOURCES, section, load)
    if not isinstance(section, OwnCode):
        opened: Source | TextSource = found(section, TASKS.default_section() if task is None else task)
        return opened
    own = OwnObject(section.source, found, section.fields)
    section = cast("OwnData", section)
    return PythonSource(own, size=section.size) if section.text is None else PythonTextSource(own)
