"""Pages by Jinja2: the templates in `alray/report/templates`, filled in with values. Every value is escaped.

A page needs no network and no other file. Only figures (`alray.report.figure`) have scripts, which the page contains.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from alray.core.counting import counted
from alray.report import text
from alray.report.figure import THEME, Exhibit, library, light_colours

if TYPE_CHECKING:
    from jinja2 import Environment


def render_page(template: str, exhibits: Sequence[Exhibit], **values: Any) -> str:
    """The page that a template makes of exhibits and values, with the library that draws figures if there are any.

    Raises jinja2.UndefinedError if a value is missing.
    """
    drawn = any(exhibit.figures for exhibit in exhibits)
    scripts = [library(), _environment().get_template("figures.js").render()] if drawn else []
    theme = {"theme": THEME, "light": light_colours()}
    allowed = " ".join([*map(_hash_of, scripts), "'unsafe-eval'"]) if scripts else "'none'"
    values |= {"exhibits": exhibits, "scripts": scripts, "allowed_scripts": allowed, "theme": theme}
    return _environment().get_template(template).render(values)


def _hash_of(script: str) -> str:
    """The hash by which a page allows a script (Content-Security-Policy). The browser runs no other one in the page."""
    return f"'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def slug(title: str) -> str:
    """A title as the name of an anchor in a page."""
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def headings(body: str) -> list[tuple[str, str]]:
    """The sections of a page that its table of contents lists: name and title, in HTML."""
    from markupsafe import Markup

    return [(name, Markup(title)) for name, title in re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', body)]


def as_link(content: str) -> str:
    """A link that has the text in itself."""
    return f"data:text/plain;charset=utf-8,{quote(content)}"


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
    forms = (text.seconds, text.score, text.number, counted, slug, headings, as_link)
    environment.filters |= {form.__name__: form for form in forms}
    return environment
