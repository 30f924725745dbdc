"""HTML by Jinja2: the templates of this room, filled in with values. Every value is escaped."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alray.records import replace_file
from alray.report import text

if TYPE_CHECKING:
    from jinja2 import Environment


def write_page(path: Path, template: str, **values: Any) -> Path:
    """Write a page to `path` and return the path. The page needs no network, no script and no other file."""
    replace_file(path, render(template, **values) + "\n")
    return path


def render(template: str, **values: Any) -> str:
    """The text of one of the templates with these values; raises jinja2.UndefinedError if a value is missing."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    # Imported here, so that only a command that makes a page loads Jinja2.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("alray.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    forms = (text.seconds, text.milliseconds, text.size, text.share, text.accuracy, text.number, text.counted)
    environment.filters |= {form.__name__: form for form in forms}
    return environment
