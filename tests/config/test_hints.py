"""Whoever follows a hint is not refused there again: a mend, a name that was meant, an example, leaving a key out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from alray.config.loading.composition import Composed
from alray.config.loading.overrides import apply_overrides
from alray.config.loading.source_locations import SourceLocations
from alray.config.loading.values import read_values
from alray.config.loading.yaml_text import Parsed, parse_yaml, read_yaml
from alray.config.sections.grammar import child, key_types, sections_of, spelled_out
from alray.config.sections.paths import Path, is_under, path_of
from alray.config.sections.section import Section
from alray.config.sections.spec import Spec
from alray.config.study.section import Study
from alray.core.errors import Problem, SpecError

from .bad_specs import BAD_SPECS, BadSpec

REMOVED = object()
_REQUIRED = "this key is required"
_ASKS_FOR_MORE = ("a disturbance slows nobody", "the text is one of `file`, `folder` and `docstrings`")


def problems_of(document: Any, root: type[Section]) -> list[Problem]:
    return read_values(root, Parsed(deepcopy(document), SourceLocations("x.yaml"), {}), None)[1]


def changed(document: Any, path: Path, value: Any) -> Any:
    """A copy of a document with another value. The last key of a path may be new, and so may the sections around it.

    Of a value that stands for a list of one, the whole is another one.
    """
    document = deepcopy(document)
    holder = document
    for depth, part in enumerate(path[:-1]):
        if isinstance(holder, dict) and holder.get(part) is None:
            holder[part] = {}
        if not isinstance(child(holder, part), dict | list):
            path = path[: depth + 1]
            break
        holder = child(holder, part)
    if value is REMOVED:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return document


def followed(document: Any, problem: Problem) -> Iterator[Any]:
    """The document, as it is then, for each thing that the hint of a problem tells to write."""
    path, hint = path_of(problem.key or ""), problem.hint or ""
    asked = re.search(r"did you mean `([^`]+)`", hint)
    if problem.message == "unknown key":
        if asked is not None:
            there = path_of(asked[1]) if "." in asked[1] or len(path) == 1 else (*path[:-1], asked[1])
            value = document
            for part in path:
                value = child(value, part)
            yield changed(changed(document, path, REMOVED), there, value)
        return
    said = [asked[1]] if asked is not None else []
    said += re.findall(r"(?:write|or) `([^`]+)`", hint)
    said += re.findall(r"such as (\[.*?\]|\{.*?\})", hint)
    said += re.findall(r"write, for example, (.+?)(?:,? or |; |$)", hint)
    if (known := re.search(r"known: (.*)$", hint)) is not None and asked is None:
        names = [name for name in known[1].split(", ") if re.fullmatch(r"[\w-]+", name)]
        with_key = re.search(r"section with its `(\w+)`", hint)
        said += names if with_key is None else [f"{{{with_key[1]}: {name}}}" for name in names]
    for text in said:
        yield changed(document, path, read_yaml(re.sub(r"\bN\b", "3", text), "")[0])
    if "leave the key out" in hint:
        yield changed(document, path, REMOVED)


def require_right(problem: Problem, left: list[Problem]) -> None:
    """The name of a part is right where the part itself asks for more."""
    part = "a section with its" in (problem.hint or "")
    below = [each for each in left if is_under(each.key or "", [problem.key or ""]) and each.message != _REQUIRED]
    again = [each for each in below if not (part and each.message in _ASKS_FOR_MORE)]
    assert not again, (str(problem), list(map(str, again)))


def require_hints_hold(document: Any, root: type[Section]) -> None:
    for problem in problems_of(document, root):
        if problem.key is None or problem.message == _REQUIRED:
            continue  # what is said is about several keys, or what a key is for
        for mended in followed(document, problem):
            require_right(problem, problems_of(mended, root))


@pytest.mark.parametrize("case", BAD_SPECS, ids=lambda case: case.change[:60])
def test_a_hint_about_a_bad_spec(case: BadSpec) -> None:
    try:
        parsed = parse_yaml(case.text, "x.yaml")
    except SpecError:
        return
    if isinstance(parsed.value, dict):
        composed = Composed(spelled_out(parsed.value), parsed.locations, {})
        apply_overrides(composed.value, case.overrides, composed.locations)
        require_hints_hold(composed.value, Spec)


WRONG = [
    *("x?", "3", "yes", "off", "none", "", "a, b", "8, 8", "1 epoch", "1e-3", "auto", "~", "[1]", "python:a.B"),
    *(-1, 0, 1, 2.0, 2.5, 10**30, float("inf"), True, None),
    *([3], ["3"], ["x"], [[3]], [1, 2, 3], [], {"a": 1}, {}),
]


def all_sections(root: type[Section], seen: dict[type[Section], None]) -> dict[type[Section], None]:
    if root not in seen:
        seen[root] = None
        for annotation in key_types(root).values():
            for section in sections_of(annotation):
                all_sections(section, seen)
    return seen


SECTIONS = [*all_sections(Spec, {}), *all_sections(Study, {})]


@pytest.mark.few
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_a_hint_about_a_wrong_value_of_any_key(section: type[Section]) -> None:
    for key in section.model_fields:
        for value in WRONG:
            require_hints_hold({key: value}, section)
