"""HTML and SVG by Jinja2: the templates of this room, filled in with values. Every value is escaped.

A page needs no network and no other file. Only figures (`alray.report.figure`) have scripts, which the page contains.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from alray.report import text

if TYPE_CHECKING:
    from jinja2 import Environment


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
        keep_trailing_newline=True,
    )
    forms = (text.seconds, text.milliseconds, text.size, text.share, text.accuracy, text.number, text.counted)
    environment.filters |= {form.__name__: form for form in forms}
    return environment
