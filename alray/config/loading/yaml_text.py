"""YAML for specs: the core types of version 1.2, one document, no duplicate keys, and a line for every value.

PyYAML reads YAML 1.1, in which `3e-4` is text, `on` is true, `010` is eight and `1:30` is ninety. Only its scanner and
parser are used here. This file defines what a plain scalar means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import PurePath
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from alray.config.loading.source_locations import VARIABLE, SourceLocation, SourceLocations, Span
from alray.config.sections.paths import Path, key_text
from alray.config.sections.section import Section, describe
from alray.core.errors import Problem, SpecError, printable
from alray.core.storage.objects import ObjectPath

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_LARGEST = 20_000
"""Keys and values in one document, and values with aliases expanded; more is a mistake or an attack."""
_DEEPEST = 32
"""Sections within sections: the deepest committed spec has 6. PyYAML takes the longer for a line the deeper it lies."""
_LONGEST_NUMBER = 100  # digits

_LINE_ENDS = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""The line ends of PyYAML."""
_PLAIN_SCALARS: tuple[tuple[str, str, str], ...] = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", r"<<", "<"),
)


_HINTS = {
    "a tab": "indent with spaces",
    "mapping values": "put each `key: value` on a separate line, and a text with `: ` in quotes",
    "sequence entries": "put each `- entry` on a separate line, below its key",
    "could not find expected ':'": "write `key: value`, and close the brackets and quotes above",
    "expected ',' or": "separate entries by commas, and close the bracket",
    "<block end>": "indent all keys of a section, and all entries of a list, alike",
    "while scanning a quoted scalar": "close the quote",
    "escape": "write `\\\\` for a backslash, or put the text in single quotes",
    "undefined alias": "write `&name` before the value that `*name` stands for, or put the text in quotes",
    "cannot start any token": "put the text in quotes",
    "the node content": "write a value here, or remove the comma or bracket",
    "": "put a text that begins with a special character in quotes",
}
"""Hints for syntax errors, by words of PyYAML's message; the first match counts."""

Resolvers = dict[str, list[tuple[str, re.Pattern[str]]]]
"""For each first letter ("" for an empty text): the types that a plain scalar can have, and their patterns."""


def _resolvers() -> Resolvers:
    resolvers: Resolvers = {}
    for name, pattern, first in _PLAIN_SCALARS:
        for letter in first:
            entry = (_TAG + name, re.compile(rf"^(?:{pattern})$"))
            resolvers.setdefault("" if letter == "\0" else letter, []).append(entry)
    return resolvers


_UNSEEN = re.compile("[\u00a0\u2007\u202f\u200b\u2060\ufeff]")
"""No-break spaces and characters without width: YAML takes them for letters, and nobody sees them."""


def _cautious(resolvers: Resolvers) -> Resolvers:
    """Add the resolvers of YAML 1.1, so that text which either version reads as another type is written in quotes.
    So is text with a character that nobody sees.
    """
    old = yaml.SafeDumper.yaml_implicit_resolvers
    unseen: Any = {None: [(_TAG + "unseen", re.compile(f".*{_UNSEEN.pattern}", re.DOTALL))]}  # None: any first letter
    cautious: Resolvers = {first: [*resolvers.get(first, []), *old.get(first, [])] for first in {*resolvers, *old}}
    cautious.update(unseen)
    return cautious


class _TooMany(Exception):
    """A document has more keys and values than any spec. PyYAML takes minutes for millions of them."""


class _TooDeep(Exception):
    """A document has more sections within sections than any spec. PyYAML's time grows with their square."""


class _YamlLoader(yaml.SafeLoader):
    yaml_implicit_resolvers = _resolvers()
    _composed = 0
    _depth = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self._composed += 1
        if self._composed > _LARGEST:
            raise _TooMany
        if self._depth > _DEEPEST:
            raise _TooDeep
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = _cautious(_resolvers())

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_list(dumper: _Dumper, items: list[Any]) -> Node:
    in_one_line = not any(isinstance(item, list | dict) for item in items)
    return dumper.represent_sequence(_TAG + "seq", items, flow_style=in_one_line)


def _represent_text(dumper: _Dumper, text: str) -> Node:
    return dumper.represent_scalar(_TAG + "str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(str, _represent_text)


@dataclass(frozen=True)
class Parsed:
    """A document, the locations of its values, and by path what it may not contain: duplicate keys, bad values."""

    value: Any
    locations: SourceLocations
    problems: dict[Path, Problem]


def parse_yaml(text: str, file: str) -> Parsed:
    """Return the document in `text`.

    An empty text gives None.

    Args:
        file: the name of the file in messages.

    Raises:
        SpecError: with the first syntax error.
    """
    locations = SourceLocations(file)
    lines = _LINE_ENDS.split(text)
    builder = _Builder(locations, lines)
    node = _compose(text, file, lines)
    value = None if node is None else builder.build(node, ())
    return Parsed(value, locations, builder.problems)


def read_yaml(text: str, file: str) -> tuple[Any, SourceLocations]:
    """Return the document in `text` and its values' locations. Raises SpecError for all problems of `parse_yaml`."""
    parsed = parse_yaml(text, file)
    if parsed.problems:
        raise SpecError.of(tuple(parsed.problems.values()))
    return parsed.value, parsed.locations


def write_yaml(value: Any) -> str:
    """Return YAML text from which `read_yaml` reads an equal value. Keys keep their order."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    assert isinstance(text, str)
    return text


def plain(value: Any, path: Path = ()) -> Any:
    """A copy of a value in the types that YAML gives: mappings as dict, sequences and arrays as list, paths as text,
    scalars of NumPy and torch as numbers.

    Raises SpecError for what is none of these.

    Args:
        path: of the value in the spec.
    """
    if isinstance(value, Section):
        value = value.model_dump(mode="json")
    if isinstance(value, Enum):
        value = value.value
    if callable(getattr(value, "tolist", None)):  # also of a float64 of NumPy, which is a float
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(each, (*path, str(key))) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, (*path, index)) for index, each in enumerate(value)]
    if isinstance(value, PurePath | ObjectPath):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise SpecError(
        f"this is {describe(value)}",
        key=key_text(path) or None,
        hint="give a number, a text, a list or a dict; in place of the name of a part, its class or a function",
    )


def _compose(text: str, file: str, lines: Sequence[str]) -> Node | None:
    try:
        loader = _YamlLoader(text)
    except yaml.reader.ReaderError as error:
        raise _unreadable(error, text, file, lines) from error
    try:
        node = loader.get_node() if loader.check_node() else None
        second = loader.get_node() if loader.check_node() else None
    except yaml.MarkedYAMLError as error:
        raise _unparsable(error, file, lines) from error
    except _TooDeep as error:
        raise _too_deep(file) from error
    except _TooMany as error:
        raise _too_many(file, "shorten its lists and sections") from error
    except ValueError as error:  # from chr(), for an escape beyond the last character
        at = _location(file, lines, loader.line)
        raise SpecError.of((at.problem("not YAML: an escape is not a character", _HINTS["escape"], None),)) from error
    finally:
        loader.dispose()
    if second is not None:
        at = _location(file, lines, second.start_mark.line, second.start_mark.column)
        raise SpecError.of(
            (at.problem("a second document starts here", "write each document to a separate file", None),)
        )
    return node


def _unreadable(error: yaml.reader.ReaderError, text: str, file: str, lines: Sequence[str]) -> SpecError:
    before = _LINE_ENDS.split(text[: error.position])
    at = _location(file, lines, len(before) - 1, len(before[-1]))
    message = f"not YAML: the character U+{ord(text[error.position]):04X} is not allowed"
    return SpecError.of((at.problem(message, "write it as an escape in a double-quoted text, or remove it", None),))


def _unparsable(error: yaml.MarkedYAMLError, file: str, lines: Sequence[str]) -> SpecError:
    mark = error.problem_mark or error.context_mark
    message = error.problem or "it cannot be read"
    if "'\\t'" in message:
        message = "a tab cannot begin a value or indent a line"
    elif error.context:
        begun = error.context_mark
        where = f" that starts in line {begun.line + 1}" if begun is not None and begun is not mark else ""
        message = f"{message} ({error.context}{where})"
    hint = next(hint for words, hint in _HINTS.items() if words in message)
    at = _location(file, lines, mark.line, mark.column) if mark is not None else SourceLocation(file, None)
    variable = VARIABLE.search(at.text or "")
    if variable is not None:
        message = f"{message}, in a line with `{variable[0]}`"
    return SpecError.of((at.problem(f"not YAML: {message}", hint, None),))


def _location(file: str | None, lines: Sequence[str], line: int, column: int | None = None) -> SourceLocation:
    """A line, and a character in it that is wrong; both are counted from 0."""
    text = lines[line] if line < len(lines) else None
    return SourceLocation(file, line + 1, text, value=None if column is None else (column + 1, column + 2))


def _too_many(file: str | None, hint: str) -> SpecError:
    return SpecError(f"the file has more than {_LARGEST:,} keys and values", hint=hint, file=file)


def _too_deep(file: str | None) -> SpecError:
    return SpecError("sections are nested too deeply", hint=f"use at most {_DEEPEST} levels", file=file)


class _Builder:
    """Makes values from nodes. Each alias gives a new value, so that an override changes one value only."""

    def __init__(self, locations: SourceLocations, lines: Sequence[str]) -> None:
        self.problems: dict[Path, Problem] = {}
        self._locations = locations
        self._lines = lines
        self._around: set[int] = set()
        self._count = 0

    def build(self, node: Node, path: Path) -> Any:
        self._count += 1
        if self._count > _LARGEST:
            raise _too_many(self._locations.file, "remove aliases")
        if len(path) > _DEEPEST:
            raise _too_deep(self._locations.file)
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._around:
            self._refuse(node, path, "this alias refers to a section that contains it", "remove the alias")
            return None
        self._around.add(id(node))
        try:
            return self._collection(node, path)
        finally:
            self._around.discard(id(node))

    def _collection(self, node: Node, path: Path) -> Any:
        if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
            for index, item in enumerate(node.value):
                self._locations.add((*path, index), self._location(item))
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        return self._foreign(node, path)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                self._merge(value_node, path, merged)
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                continue
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode) or key_node.tag != _TAG + "str":
                shown = f"`{key_node.value}`" if isinstance(key_node, ScalarNode) else "a list or section"
                message = f"{shown} is used as a key, but keys are text"
                self._refuse(key_node, path, message, "write the key in quotes", within=f"line {line}")
            elif printable(key_node.value) != key_node.value:  # half a surrogate pair, which pydantic does not take
                message = f"`{printable(key_node.value)}` is used as a key, but keys are text"
                self._refuse(key_node, path, message, "write another key", within=f"line {line}")
            elif key_node.style is None and (unseen := _UNSEEN.search(key_node.value)):
                message, hint = _of_unseen(unseen[0])
                self._refuse(key_node, path, message, hint, within=f"line {line}")
            elif key_node.value in own:
                first = lines[key_node.value]
                self._refuse(
                    key_node,
                    (*path, key_node.value),
                    f"this key is already in line {first}",
                    "keep one of them",
                )
            else:
                here = (*path, key_node.value)
                self._locations.add(here, self._location(value_node, key_node))
                lines[key_node.value] = line
                own[key_node.value] = self.build(value_node, here)
        return {**merged, **own}

    def _merge(self, node: Node, path: Path, into: dict[str, Any]) -> None:
        """Read `<<: *alias` or `<<: [*a, *b]`. If both have a key, the value of the earlier one is used."""
        sources = node.value if isinstance(node, SequenceNode) else [node]
        for source in reversed(sources):
            value = self.build(source, path) if isinstance(source, MappingNode) else None
            if isinstance(value, dict):
                into.update(value)
            else:
                hint = "write, for example, `<<: *name`"
                self._refuse(source, path, "`<<` needs a section or a list of sections", hint, within="<<")

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        unseen = next((end for end in (node.value[:1], node.value[-1:]) if _UNSEEN.match(end)), None)
        if unseen is not None and node.style is None:
            self._refuse(node, path, *_of_unseen(unseen))
            return _UNSEEN.sub("", node.value)
        make = _SCALARS.get(node.tag)
        if make is None:
            return self._foreign(node, path)
        try:
            return make(node.value)
        except ValueError:
            kind = node.tag.removeprefix(_TAG)
            # An escape can be half of a surrogate pair, which cannot be printed.
            text = node.value.encode("utf-8", "backslashreplace").decode("utf-8")
            shown = text if len(text) <= 60 else text[:57] + "..."
            self._refuse(node, path, f"`{shown}` is not a value of the type {kind}", "write another value")
            return None

    def _foreign(self, node: Node, path: Path) -> None:
        tag = node.tag.replace(_TAG, "!!")
        self._refuse(
            node, path, f"values of the type `{tag}` are not supported", "use text, numbers, lists and sections"
        )

    def _refuse(self, node: Node, path: Path, message: str, hint: str, within: str | None = None) -> None:
        """
        Args:
            within: the entry of the section at `path` that is wrong, if the section itself is not.
        """
        problem = self._location(node).problem(message, hint, key_text(path) or None)
        self.problems.setdefault(path if within is None else (*path, within), problem)

    def _location(self, node: Node, key: Node | None = None) -> SourceLocation:
        """The location of a value: the line of its key, if it has one, else that where it begins."""
        at = _location(self._locations.file, self._lines, (node if key is None else key).start_mark.line)
        return replace(at, key=_span(key, at.line) if key is not None else None, value=_span(node, at.line))


def _of_unseen(character: str) -> tuple[str, str]:
    """Message and hint about one of `_UNSEEN` in a text without quotes."""
    kind = "a no-break space" if character.isspace() else "a character without width"
    return (
        f"this has {kind} (U+{ord(character):04X})",
        "write an ordinary space, or nothing; a text in quotes may have it",
    )


def _span(node: Node, line: int | None) -> Span | None:
    """The columns of a node in this line: None if it begins in another one, its first character if it ends there."""
    first, end = node.start_mark, node.end_mark
    if first.line + 1 != line:
        return None
    return first.column + 1, max(end.column + 1 if end.line == first.line else 0, first.column + 2)


def _text(text: str) -> str:
    text.encode("utf-8", "surrogateescape")  # as Python holds a file name with bytes that are not UTF-8
    return text


def _integer(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(text)
    if text.startswith(("0o", "0x")):
        return int(text, 0)
    return int(text, 10)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _float(text: str) -> float:
    return float(re.sub(r"^([-+]?)\.(?=[a-zA-Z])", r"\1", text))


_SCALARS: dict[str, Callable[[str], Any]] = {
    _TAG + "null": lambda text: None,
    _TAG + "bool": _boolean,
    _TAG + "int": _integer,
    _TAG + "float": _float,
    _TAG + "str": _text,
}
