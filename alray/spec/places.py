"""The file and line of each value of a spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Path = tuple[str | int, ...]
"""Keys and list indices from the root of the spec to a value."""

COMMAND_LINE = "command line"


def key_text(path: Path) -> str:
    """Return a path as messages print it: `model.components[2].channels`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


@dataclass(frozen=True)
class Place:
    """A file as the user named it, None for a spec that has no file, and a line in it, counted from 1."""

    file: str | None
    line: int | None


@dataclass
class Places:
    """The places of the values of one spec."""

    file: str | None
    _places: dict[Path, Place] = field(default_factory=dict)

    def add(self, path: Path, line: int) -> None:
        """Record that `path` is on this line of the file."""
        self._places[path] = Place(self.file, line)

    def __iter__(self) -> Iterator[tuple[Path, Place]]:
        return iter(self._places.items())

    def over(self, below: Mapping[Path, Place]) -> Places:
        """These places, and below them those of another file."""
        return Places(self.file, {**below, **self._places})

    def override(self, path: Path) -> None:
        """Record that `path` and everything below it comes from the command line."""
        for old in [old for old in self._places if old[: len(path)] == path]:
            del self._places[old]
        self._places[path] = Place(COMMAND_LINE, None)

    def is_override(self, path: Path) -> bool:
        """Whether the value at `path`, or a section around it, comes from the command line."""
        return self.of(path).file == COMMAND_LINE

    def of(self, path: Path) -> Place:
        """Return the place of `path`, or of the innermost section around it that has a place."""
        for around in _outwards(path):
            if around in self._places:
                return self._places[around]
        return Place(self.file, None)


def _outwards(path: Path) -> Iterator[Path]:
    for length in range(len(path), -1, -1):
        yield path[:length]
