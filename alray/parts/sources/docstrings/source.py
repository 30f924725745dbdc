"""Docstrings of the installed standard library, NumPy, SciPy and scikit-learn."""

from __future__ import annotations

from alray.config.sections.task import TaskSection
from alray.data.docstrings import DocstringSource
from alray.data.source import TextSource
from alray.parts.sources.docstrings.keys import Docstrings


def opened(section: Docstrings, task: TaskSection) -> TextSource:
    """The source of a spec's section, the same for all tasks. `implementation` in keys.py names this function, and
    `alray.data.opening.make_source` calls it."""
    return DocstringSource()
