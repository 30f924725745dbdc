"""How commands lay out what they print. All of them use these rules:

- A heading, in bold on a terminal, says what follows.
- Names with values are aligned.
- Tables are drawn by rich: two spaces between columns, figures to the right, texts to the left.
- Sentences, such as notes and errors, follow after the tables.
- The last lines say where the results are, or which command continues.

Each sentence, each value and, in a pipe or a file, each row of a table is one line, so that `grep` finds it and what is
copied from a terminal is whole. Colour is for terminals; NO_COLOR leaves it out.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TextIO

from alray.core.finite import finite
from alray.report.table import Table
from alray.report.text import NOT_MEASURED

RED = "31;1"
YELLOW = "33"
BLUE = "34"
BOLD = "1"
"""Styles, as terminals know them (ECMA-48, SGR)."""

_WHOLE = 10_000
"""Columns in which every row is one line."""
_SPACES = {"\n": " ", "\t": "    "}
_ACTING = ("Cc", "Cs", "Zl", "Zp")
"""Unicode's categories of what acts on a terminal or cannot be written: controls, surrogates, ends of lines."""
_TURNING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
"""Unicode's classes of marks that turn the direction of text, and so could show another text than there is."""
_OWN = re.compile(r"(\x1b\[(?:0|1|3[1-7](?:;1)?|38;5;1\d\d)m|[\n\t]+)|([^\x1b\n\t]+|\x1b)")
"""A style of alray (bold, or a colour of letters) or an end of a line, or else a text between them."""
_MARKED = {"error:": RED, "warning:": YELLOW, "note:": BLUE}


@dataclass(frozen=True)
class Page:
    """The properties of an output stream.

    Attributes:
        width: columns of its tables.
    """

    width: int = _WHOLE
    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO) -> Page:
        """The page of a stream, as wide as the terminal is now."""
        if not stream.isatty():
            return cls()
        colour = os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR")
        return cls(shutil.get_terminal_size().columns, colour)

    def styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.colour and text else text

    def heading(self, text: str) -> str:
        return self.styled(cleaned(text), BOLD)

    def sentence(self, text: str) -> str:
        """A sentence, or several lines of them."""
        shown = "\n".join(map(cleaned, text.split("\n")))
        word = shown.partition(" ")[0]
        return self.styled(word, _MARKED[word]) + shown[len(word) :] if word in _MARKED else shown

    def fields(self, rows: Iterable[tuple[str, str]]) -> str:
        """A line for each name and value. The values are aligned. Without a name, a value belongs to the one above."""
        rows = [(cleaned(name), cleaned(value)) for name, value in rows]
        width = max((columns(name) for name, _ in rows), default=0)
        return "\n".join(f"{name}{' ' * (width - columns(name))}  {value}".rstrip() for name, value in rows)

    def table(self, table: Table) -> str:
        """A table whose first column names the rows. Words stay whole, also where the table is then too wide."""
        import rich.table
        from rich.console import Console
        from rich.text import Text

        drawn = rich.table.Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
        for cells in zip(table.head, *table.rows, strict=True):
            side: Literal["right", "left"] = "right" if _is_figures(cells[1:]) else "left"
            longest = max(columns(word) for cell in cells for word in cleaned(cell).split(" "))
            drawn.add_column(Text(cleaned(cells[0])), justify=side, min_width=longest)
        for row in table.rows:
            drawn.add_row(*(Text(cleaned(cell)) for cell in row))
        text = io.StringIO()
        colours: Literal["standard"] | None = "standard" if self.colour else None
        # With both sizes given, rich asks no terminal and no TERM.
        console = Console(file=text, width=self.width, height=1, color_system=colours, highlight=False)
        console.print(drawn, crop=False)
        return "\n".join(line.rstrip() for line in text.getvalue().rstrip("\n").split("\n"))


def cleaned(text: str) -> str:
    """A text from anywhere, as it can be shown: a control character becomes its escape."""
    return "".join(_SPACES.get(each) or _unless_acting(each) for each in text) if not text.isprintable() else text


def safe(text: str) -> str:
    """A text that is laid out, as it can be printed: only its lines, its tabs and alray's styles act.

    A network, a data set, a run folder or an error may say anything, also what moves the cursor, changes the title of a
    terminal or types for the user. Whatever a command prints goes through here, so this also holds for what no rule of
    the layout has cleaned.
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return _OWN.sub(lambda found: found[1] or "".join(map(_unless_acting, found[2])), text)


def json_text(value: Any) -> str:
    """A value as JSON with letters as they are, in which whatever would act on a terminal is escaped. Numbers that are
    not finite become null."""
    written = json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False)
    if written.isascii() and "\x7f" not in written:
        return written
    return "".join(f"\\u{ord(each):04x}" if each != "\n" and _acts(each) else each for each in written)


def columns(text: str) -> int:
    """The columns that a terminal needs for a text: two for a wide character, none for a combining accent."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _unless_acting(character: str) -> str:
    return ascii(character)[1:-1] if _acts(character) else character


def _acts(character: str) -> bool:
    return unicodedata.category(character) in _ACTING or unicodedata.bidirectional(character) in _TURNING


def _is_figures(column: Sequence[str]) -> bool:
    return all(cell[:1].isdigit() or cell in (NOT_MEASURED, "") for cell in column) and any(column)
