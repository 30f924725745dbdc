"""YAML for specs: the core types of version 1.2, one document, no duplicate keys, and a line for every value.

PyYAML reads YAML 1.1, in which `3e-4` is text, `on` is true, `010` is eight and `1:30` is ninety. Its nodes are
used here. This file says what a plain scalar means, and makes values of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
"""Keys and values in one document, and values with aliases expanded; more is a mistake or an attack, for which PyYAML
takes minutes."""
_DEEPEST = 32
"""Sections within sections: the deepest committed spec has 6. PyYAML takes the longer for a line the deeper it lies."""
_LONGEST_NUMBER = 100  # digits
_LINE_ENDS = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""The line ends of PyYAML."""
_UNSEEN = re.compile("[\u00a0\u2007\u202f\u200b\u2060\ufeff]")
"""No-break spaces and characters without width: YAML takes them for letters, and nobody sees them."""


def _text(text: str) -> str:
    text.encode("utf-8", "surrogateescape")  # as Python holds a file name with bytes that are not UTF-8
    return text


def _integer(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(text)
    return int(text, 0 if text.startswith(("0o", "0x")) else 10)


def _float(text: str) -> float:
    return float(re.sub(r"^([-+]?)\.(?=[a-zA-Z])", r"\1", text))


_SCALARS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "null": (r"~|null|Null|NULL|", lambda text: None),
    "bool": (r"true|True|TRUE|false|False|FALSE", lambda text: {"true": True, "false": False}[text.lower()]),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", _integer),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        _float,
    ),
    "str": (r"(?!)", _text),  # what is none of the others
}
"""The types of scalars: which plain ones have it, and their value."""
_RESOLVERS = [(_TAG + name, re.compile(f"^(?:{pattern})$")) for name, (pattern, _) in _SCALARS.items()]
_RESOLVERS.append((_MERGE, re.compile("^<<$")))
_READ = {None: _RESOLVERS}  # None: whatever the first letter is
_QUOTED = [each for old in yaml.SafeDumper.yaml_implicit_resolvers.values() for each in old]
_WRITTEN = {None: [*_RESOLVERS, *_QUOTED, (_TAG + "unseen", re.compile(f".*{_UNSEEN.pattern}", re.DOTALL))]}

_SYNTAX: tuple[tuple[str, str | None, str], ...] = (
    ("'\\t'", "a tab cannot begin a value or indent a line", "indent with spaces"),
    ("another document", "a second document starts here", "write each document to a separate file"),
    ("mapping values", None, "indent the keys of a section alike, each on a line, and put a text with `: ` in quotes"),
    ("sequence entries", None, "put each `- entry` on a separate line, below its key"),
    ("could not find expected ':'", None, "write `key: value`, and close the brackets and quotes above"),
    ("expected ',' or", None, "separate entries by commas, and close the bracket"),
    ("<block end>", None, "indent all keys of a section, and all entries of a list, alike"),
    ("while scanning a quoted scalar", None, "close the quote"),
    ("escape", None, "write `\\\\` for a backslash, or put the text in single quotes"),
    ("undefined alias", None, "write `&name` before the value that `*name` stands for, or put the text in quotes"),
    ("cannot start any token", None, "put the text in quotes"),
    ("the node content", None, "write a value here, or remove the comma or bracket"),
    ("not allowed", None, "write it as an escape in a double-quoted text, or remove it"),
    ("", None, "put a text that begins with a special character in quotes"),
)
"""Of syntax errors: words of PyYAML's message, what is told in its place, and the hint. The first match counts."""


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = _READ

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text)
        self._file = file
        self._composed = 0
        self._depth = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self._composed += 1
        _require_small(self._file, self._composed, self._depth, "shorten its lists and sections")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _require_small(file: str | None, count: int, depth: int, hint: str) -> None:
    if count > _LARGEST:
        raise SpecError(f"the file has more than {_LARGEST:,} keys and values", hint=hint, file=file)
    if depth > _DEEPEST:
        raise SpecError("sections are nested too deeply", hint=f"use at most {_DEEPEST} levels", file=file)


class _Dumper(yaml.SafeDumper):
    """Puts a text in quotes that YAML 1.1 or 1.2 reads as another type, or that has a character that nobody sees."""

    yaml_implicit_resolvers = _WRITTEN

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
    builder = _Builder(SourceLocations(file), _LINE_ENDS.split(text))
    node = builder.compose(text, file)
    value = None if node is None else builder.build(node, ())
    return Parsed(value, builder.locations, builder.problems)


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


class _Builder:
    """Makes values from nodes. Each alias gives a new value, so that an override changes one value only."""

    def __init__(self, locations: SourceLocations, lines: Sequence[str]) -> None:
        self.problems: dict[Path, Problem] = {}
        self.locations = locations
        self._lines = lines
        self._around: set[int] = set()
        self._count = 0

    def compose(self, text: str, file: str) -> Node | None:
        """The node of the document, None if there is none. Raises SpecError with the first syntax error."""
        line = 0
        try:
            loader = _Loader(text, file)
            try:
                return loader.get_single_node()
            finally:
                line = loader.line
                loader.dispose()
        except yaml.reader.ReaderError as error:
            before = _LINE_ENDS.split(text[: error.position])
            message = f"the character U+{ord(text[error.position]):04X} is not allowed"
            raise self._unparsable(message, len(before) - 1, len(before[-1])) from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            assert mark is not None
            message = error.problem or "it cannot be read"
            if error.context:
                begun = error.context_mark
                where = f" that starts in line {begun.line + 1}" if begun is not None and begun is not mark else ""
                message = f"{message} ({error.context}{where})"
            raise self._unparsable(message, mark.line, mark.column) from error
        except ValueError as error:  # from chr(), for an escape beyond the last character
            raise self._unparsable("an escape is not a character", line) from error

    def _unparsable(self, message: str, line: int, column: int | None = None) -> SpecError:
        own, hint = next((own, hint) for words, own, hint in _SYNTAX if words in message)
        at = self._line(line, column)
        variable = VARIABLE.search(at.text or "")
        in_line = "" if variable is None else f", in a line with `{variable[0]}`"
        return SpecError.of((at.problem(f"{own or f'not YAML: {message}'}{in_line}", hint, None),))

    def build(self, node: Node, path: Path) -> Any:
        self._count += 1
        _require_small(self.locations.file, self._count, len(path), "remove aliases")
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, ScalarNode) and kind in _SCALARS:
            return self._scalar(node, kind, path)
        if id(node) in self._around:
            return self._refuse(node, path, "this alias refers to a section that contains it", "remove the alias")
        self._around.add(id(node))
        value: Any = None
        if isinstance(node, SequenceNode) and kind == "seq":
            value = [self._located(item, (*path, index)) for index, item in enumerate(node.value)]
        elif isinstance(node, MappingNode) and kind == "map":
            value = self._mapping(node, path)
        else:
            message = f"values of the type `{node.tag.replace(_TAG, '!!')}` are not supported"
            self._refuse(node, path, message, "use text, numbers, lists and sections")
        self._around.discard(id(node))
        return value

    def _located(self, node: Node, path: Path, key: Node | None = None) -> Any:
        self.locations.add(path, self._location(node, key))
        return self.build(node, path)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        merged = [each for key, value in node.value if key.tag == _MERGE for each in self._merged(value, path)]
        own: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                continue
            line = key.start_mark.line + 1
            fault = _key_fault(key, value)
            if fault is not None:
                self._refuse(key, path, *fault, within=f"line {line}")
            elif key.value in own:
                message = f"this key is already in line {lines[key.value]}"
                self._refuse(key, (*path, key.value), message, "keep one of them")
            else:
                lines[key.value] = line
                own[key.value] = self._located(value, (*path, key.value), key)
        return {**dict(merged), **own}

    def _merged(self, node: Node, path: Path) -> Iterator[tuple[str, Any]]:
        """Read `<<: *alias` or `<<: [*a, *b]`. If both have a key, the value of the earlier one is used."""
        for source in reversed(node.value if isinstance(node, SequenceNode) else [node]):
            value = self.build(source, path) if isinstance(source, MappingNode) else None
            if isinstance(value, dict):
                yield from value.items()
            else:
                hint = "write, for example, `<<: *name`"
                self._refuse(source, path, "`<<` needs a section or a list of sections", hint, within="<<")

    def _scalar(self, node: ScalarNode, kind: str, path: Path) -> Any:
        unseen = next((end for end in (node.value[:1], node.value[-1:]) if _UNSEEN.match(end)), None)
        if unseen is not None and node.style is None:
            self._refuse(node, path, *_of_unseen(unseen))
            return _UNSEEN.sub("", node.value)
        try:
            return _SCALARS[kind][1](node.value)
        except (ValueError, KeyError):
            text = printable(node.value)
            shown = text if len(text) <= 60 else text[:57] + "..."
            return self._refuse(node, path, f"`{shown}` is not a value of the type {kind}", "write another value")

    def _refuse(self, node: Node, path: Path, message: str, hint: str, within: str | None = None) -> None:
        """
        Args:
            within: the entry of the section at `path` that is wrong, if the section itself is not.
        """
        problem = self._location(node).problem(message, hint, key_text(path) or None)
        self.problems.setdefault(path if within is None else (*path, within), problem)

    def _location(self, node: Node, key: Node | None = None) -> SourceLocation:
        """The location of a value: the line of its key, if it has one, else that where it begins."""
        at = self._line((node if key is None else key).start_mark.line)
        return replace(at, key=_span(key, at.line) if key is not None else None, value=_span(node, at.line))

    def _line(self, line: int, column: int | None = None) -> SourceLocation:
        """A line, and a character in it that is wrong; both are counted from 0."""
        text = self._lines[line] if line < len(self._lines) else None
        value = None if column is None else (column + 1, column + 2)
        return SourceLocation(self.locations.file, line + 1, text, value=value)


def _key_fault(key: Node, value: Node) -> tuple[str, str] | None:
    """Message and hint for a key that is none."""
    if not isinstance(key, ScalarNode):
        return "a list or section is used as a key, but keys are text", "write the key in quotes"
    if key.tag != _TAG + "str":
        hint = "write the key in quotes" if value.value else "write a number with a point: `0.01` for `0,01`"
        return f"`{key.value}` is used as a key, but keys are text", hint
    if printable(key.value) != key.value:  # half a surrogate pair, which pydantic does not take
        return f"`{printable(key.value)}` is used as a key, but keys are text", "write another key"
    unseen = _UNSEEN.search(key.value) if key.style is None else None
    return None if unseen is None else _of_unseen(unseen[0])


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
