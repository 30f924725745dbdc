"""One self-contained HTML file, readable without a network, a script or the folders it was made from."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path


def write_document(path: Path, *, title: str, sections: Sequence[str], footer: str) -> Path:
    """Write a page of these sections, which are HTML, to `path` and return it; title and footer are plain text.

    The file is the old one or the new one, whole.
    """
    style = files("alray.report").joinpath("page.css").read_text(encoding="utf-8")
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>"
        + "\n".join(sections)
        + f"<footer>{escape(footer)}</footer></main></body></html>\n"
    )
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(page, encoding="utf-8")
    temporary.replace(path)
    return path
