"""The file and line of each value of a spec."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from alray.config.sections.paths import Path, path_of
from alray.core.errors import AlrayError, Problem

COMMAND_LINE = "command line"

VARIABLE = re.compile(r"\$\{[^}]*\}|\$[A-Za-z_]\w*")
"""An environment variable, as a shell would fill it in."""
_NOT_FILLED_IN = (
    "environment variables are not filled in: write the value itself, or give it by an override, "
    'KEY="$NAME", where the shell fills it in'
)

Span = tuple[int, int]
"""Columns of a line, counted from 1: the first one, and the one after the last."""


@dataclass(frozen=True)
class SourceLocation:
    """A file as the user named it, None for a spec that has no file, and a line in it, counted from 1.

    Attributes:
        text: that line, or the override of the command line.
        key, value: where they are in it.
    """

    file: str | None
    line: int | None
    text: str | None = None
    key: Span | None = None
    value: Span | None = None

    @property
    def written(self) -> str | None:
        """The value as it is written; None if it is not in this line."""
        return None if self.text is None or self.value is None else self.text[self.value[0] - 1 : self.value[1] - 1]

    def as_override(self, value: str) -> str | None:
        """The override with another value, as it is typed in a shell; None for a location in a file."""
        if self.file != COMMAND_LINE or self.text is None:
            return None
        word = f"{self.text.partition('=')[0]}={value}"
        return shlex.quote(word) if re.search(r'["$`\\!]', word) else f'"{word}"'

    def problem(self, message: str, hint: str | None, key: str | None, *, at_key: bool = False) -> Problem:
        """A problem here.

        Args:
            at_key: whether the key is wrong, and not its value.
        """
        if VARIABLE.search(message):
            hint = _NOT_FILLED_IN
        found = (self.key or self.value) if at_key else (self.value or self.key)
        column, end_column = found or (None, None)
        return Problem(message, hint, self.file, self.line, key, column=column, end_column=end_column, text=self.text)


@dataclass
class SourceLocations:
    """The source locations of the values of one spec."""

    file: str | None
    _locations: dict[Path, SourceLocation] = field(default_factory=dict)

    def add(self, path: Path, location: SourceLocation) -> None:
        """Record where `path` is."""
        self._locations[path] = location

    def __iter__(self) -> Iterator[tuple[Path, SourceLocation]]:
        return iter(self._locations.items())

    def over(self, below: Mapping[Path, SourceLocation]) -> SourceLocations:
        """Return these locations, and below them those of another file."""
        return SourceLocations(self.file, {**below, **self._locations})

    def override(self, path: Path, text: str) -> None:
        """Record that `path` and everything below it comes from the command line, from the override `text`."""
        for old in [old for old in self._locations if old[: len(path)] == path]:
            del self._locations[old]
        self._locations[path] = override_location(text)

    def is_override(self, path: Path) -> bool:
        """Whether the value at `path`, or a section around it, comes from the command line."""
        return self.of(path).file == COMMAND_LINE

    def of(self, path: Path) -> SourceLocation:
        """Return the location of `path`, or of the innermost section around it that has one.

        Of such a section, the key says enough: its value is long.
        """
        for around in _outwards(path):
            if around in self._locations:
                location = self._locations[around]
                return location if around == path else replace(location, value=location.key or location.value)
        return SourceLocation(self.file, None)

    def exactly(self, path: Path) -> SourceLocation | None:
        """The location of the value at `path`; None if only a section around it has one."""
        return self._locations.get(path)

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Inside, a problem that names a key of the spec, but no location, gets the one where the key was written."""
        try:
            yield
        except AlrayError as error:
            error.restate(map(self._located, error.problems))
            raise

    def _located(self, problem: Problem) -> Problem:
        if problem.file is not None or problem.key is None or problem.key.startswith("-"):
            return problem
        location = self.of_fault(path_of(problem.key), problem.message)
        return replace(location.problem(problem.message, problem.hint, problem.key), traceback=problem.traceback)

    def of_fault(self, path: Path, message: str) -> SourceLocation:
        """Return the location to show for a problem with the whole of `path`.

        Where the command line sets keys of it, the file has an older value: the overrides are shown. Those that the
        message names are shown alone; of a section of the root, or next to `path`, no others.
        """
        if not path or self.is_override(path):
            return self.of(path)
        given = {other: each.text or "" for other, each in self._locations.items() if each.file == COMMAND_LINE}
        below = {other: text for other, text in given.items() if other[: len(path)] == path}
        beside = {other: text for other, text in given.items() if other[:-1] == path[:-1] != ()}
        named = [text for other, text in (below or beside).items() if _names(message, other[-1])]
        texts = dict.fromkeys(named or (below.values() if len(path) > 1 else ()))
        if not texts:
            return self.of(path)
        location = override_location(" ".join(texts))
        return location if len(texts) == 1 else replace(location, value=(1, len(location.text or "") + 1))


def _names(message: str, part: str | int) -> bool:
    return isinstance(part, str) and re.search(rf"(?<!\w){re.escape(part)}(?!\w)", message) is not None


def override_location(text: str) -> SourceLocation:
    """The location of a value in an override, `key.sub=value`."""
    key, equals, _ = text.partition("=")
    end = len(text) + 1
    return SourceLocation(COMMAND_LINE, None, text, (1, len(key) + 1), (len(key) + 2, end) if equals else (1, end))


def _outwards(path: Path) -> Iterator[Path]:
    for length in range(len(path), -1, -1):
        yield path[:length]
