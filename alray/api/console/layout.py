"""How commands lay out what they print. All of them use these rules:

- A heading, in bold on a terminal, says what follows.
- Names with values are aligned. What does not fit of a value continues below its beginning.
- Tables are drawn by rich: two spaces between columns, figures to the right, texts to the left.
- Sentences, such as notes and errors, follow after the tables.
- The last lines say where the results are, or which command continues.

Lines of sentences and of values break at spaces only. Paths, hashes, keys and commands stay whole: a line that is too
long is better than a path that cannot be copied.

In a pipe or a file each sentence, each value and each row of a table is one line, so that `grep` finds it. A variable
COLUMNS in the environment gives another width of a terminal, and of charts. Colour is for terminals; NO_COLOR leaves it
out, and FORCE_COLOR has it in a pipe too.
"""

from __future__ import annotations

import io
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

from alray.core.finite import finite
from alray.report.table import Table
from alray.report.text import NOT_MEASURED

if TYPE_CHECKING:
    import rich.table
    from rich.text import Text

RED = "31;1"
GREEN = "32"
YELLOW = "33"
BLUE = "34"
BOLD = "1"
"""Styles, as terminals know them (ECMA-48, SGR)."""

_WIDTH = 80
_WHOLE = 10_000
"""Columns in which every row is one line."""
_NARROWEST = 20
_LONG_NAME = 30
"""The value of a name that is longer begins on the next line."""
_NO_BREAK = "\x1f"
"""Stands for a space at which no line may break."""
_SPACES = {_NO_BREAK: _NO_BREAK, "\n": " ", "\t": "    "}
_ACTING = ("Cc", "Cs", "Zl", "Zp")
"""Unicode's categories of what acts on a terminal or cannot be written: controls, surrogates, ends of lines."""
_TURNING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
"""Unicode's classes of marks that turn the direction of text, and so could show another text than there is."""
_UNIT = re.compile(r"(?<=\d) (?=(?:%|[mµ]?s|[kMGT]?B|min|h)(?!\w))")
_OWN = re.compile(r"(\x1b\[(?:0|1|3[1-7](?:;1)?|38;5;1\d\d)m|[\n\t]+)|([^\x1b\n\t]+|\x1b)")
"""A style of alray (bold, or a colour of letters) or an end of a line, or else a text between them."""
_MARKED = {"error:": RED, "warning:": YELLOW, "note:": BLUE}


@dataclass(frozen=True)
class Page:
    """The properties of an output stream.

    Attributes:
        width: columns of its charts.
        wraps: whether sentences and tables wrap there.
    """

    width: int
    wraps: bool = True
    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO) -> Page:
        """The page of a stream, as wide as its terminal is now."""
        given = os.environ.get("COLUMNS", "")
        is_terminal, forced = stream.isatty(), bool(os.environ.get("FORCE_COLOR"))
        width = int(given) if given.isdecimal() else _terminal_width(stream) if is_terminal else _WIDTH
        able = is_terminal and os.environ.get("TERM", "dumb") != "dumb"
        colour = (able or forced) and not os.environ.get("NO_COLOR")
        return cls(max(width, _NARROWEST), wraps=is_terminal, colour=colour)

    def styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.colour and text else text

    def heading(self, text: str) -> str:
        return "\n".join(self.styled(line, BOLD) for line in self._lines(text, "", ""))

    def sentence(self, text: str, *, first: str = "", hang: str = "  ") -> str:
        """A sentence, or several lines of them.

        Args:
            first: what the first line begins with.
            hang: what the others do.
        """
        lines: list[str] = []
        for line in text.split("\n"):
            indent = line[: len(line) - len(line.lstrip(" "))]
            lines += self._lines(line.lstrip(" "), first + indent, hang + indent)
            first = hang if first else ""
        word = lines[0].partition(" ")[0]
        if word in _MARKED:
            lines[0] = self.styled(word, _MARKED[word]) + lines[0][len(word) :]
        return "\n".join(lines)

    def fields(self, rows: Iterable[tuple[str, str]], *, indent: str = "") -> str:
        """A line for each name and value. The values are aligned. Without a name, a value belongs to the one above."""
        rows = [(cleaned(name), value) for name, value in rows]
        most = min(_LONG_NAME, self.width // 2)
        width = max((columns(name) for name, _ in rows if columns(name) <= most), default=0)
        lines: list[str] = []
        for name, value in rows:
            first, hang = f"{indent}{name}{' ' * (width - columns(name))}  ", indent + " " * (width + 2)
            if self.wraps and columns(name) > width:
                lines.append(indent + name)
                first = hang
            lines += self._lines(value, first, hang)
        return "\n".join(lines)

    def table(self, table: Table) -> str:
        """A table whose first column names the rows."""
        from rich.console import Console  # the help has no table, and needs no rich

        text = io.StringIO()
        colours: Literal["standard"] | None = "standard" if self.colour else None
        width = self.width if self.wraps else _WHOLE
        # With both sizes given, rich asks no terminal and no TERM.
        console = Console(file=text, width=width, height=1, color_system=colours, highlight=False)
        console.print(rich_table(table), crop=False)
        return "\n".join(line.rstrip() for line in text.getvalue().rstrip("\n").split("\n"))

    def _lines(self, text: str, first: str, hang: str) -> list[str]:
        """The text, after `first`, in lines; all but the first begin with `hang`."""
        text = _UNIT.sub(_NO_BREAK, cleaned(text))
        if not self.wraps:
            return [(first + text).replace(_NO_BREAK, " ").rstrip()]
        lines = _wrapped(text, self.width - columns(hang), self.width - columns(first))
        return [(before + line).rstrip() for before, line in zip([first, *[hang] * len(lines)], lines, strict=False)]


def unbroken(text: str) -> str:
    """A text, such as a command, in which no line is to break."""
    return text.replace(" ", _NO_BREAK)


def cleaned(text: str) -> str:
    """A text from anywhere, as it can be shown: a control character becomes its escape."""
    return "".join(_shown(character) for character in text) if not text.isprintable() else text


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
    from rich.cells import cell_len  # the help is in ASCII, and needs no rich

    return cell_len(text.replace(_NO_BREAK, " "))


def _shown(character: str) -> str:
    return _SPACES[character] if character in _SPACES else _unless_acting(character)


def _unless_acting(character: str) -> str:
    return ascii(character)[1:-1] if _acts(character) else character


def _acts(character: str) -> bool:
    return unicodedata.category(character) in _ACTING or unicodedata.bidirectional(character) in _TURNING


def _terminal_width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _WIDTH
    except OSError:  # a stand-in for a terminal; `io.UnsupportedOperation` is one
        return _WIDTH


def _wrapped(text: str, width: int, first: int | None = None) -> list[str]:
    """The text in lines of so many columns, broken at spaces; a word that is longer gets a separate line.

    Args:
        first: the columns of the first line, if they differ.
    """
    lines, room = [""], width if first is None else first
    for word in re.findall(r" *[^ ]+", text):
        if lines[-1] and columns(lines[-1]) + columns(word) > room:
            lines.append(word.lstrip(" "))
            room = width
        else:
            lines[-1] += word
    return [line.replace(_NO_BREAK, " ") for line in lines]


def rich_table(table: Table) -> rich.table.Table:
    """The table as rich draws it. Words stay whole, also where the table is then too wide."""
    from rich.table import Table as Drawn

    drawn = Drawn(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for texts in zip(table.head, *table.rows, strict=True):
        side: Literal["right", "left"] = "right" if _is_figures(texts[1:]) else "left"
        words = (word for text in texts for word in _UNIT.sub(_NO_BREAK, cleaned(text)).split(" "))
        drawn.add_column(_cell(texts[0]), justify=side, min_width=max(map(columns, words)))
    for row in table.rows:
        drawn.add_row(*map(_cell, row))
    return drawn


def _cell(text: str) -> Text:
    from rich.text import Text

    return Text(cleaned(text).replace(_NO_BREAK, " "))


def _is_figures(column: Sequence[str]) -> bool:
    return all(cell[:1].isdigit() or cell in (NOT_MEASURED, "") for cell in column) and any(column)
