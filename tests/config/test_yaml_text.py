"""YAML 1.2's core types, lines, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from alray.config.loading.yaml_text import read_yaml, write_yaml
from alray.core.errors import SpecError


def value_of(text: str) -> Any:
    return read_yaml(text, "x.yaml")[0]


def complaint(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        read_yaml(text, "x.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1.0e-3", 1e-3),
        ("+.5", 0.5),
        ("5.", 5.0),
        ("-7", -7),
        ("010", 10),
        ("0o10", 8),
        ("0x10", 16),
        ("-.inf", -math.inf),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("!!str 3", "3"),
        ("!!int 3", 3),
    ],
)
def test_values(text: str, value: Any) -> None:
    got = value_of(f"k: {text}")["k"]
    assert (type(got), got) == (type(value), value)


def test_what_only_yaml_1_1_takes_for_a_value_is_text() -> None:
    words = ["on", "off", "yes", "no", "Y", "1:30", "1_000", "2020-01-01", "=", "0b1", "e3", "."]
    assert value_of(f"[{', '.join(words)}]") == words


def test_nan_is_a_number() -> None:
    assert math.isnan(value_of("k: .nan")["k"])


def test_aliases_and_merge_keys() -> None:
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {<<: [*a, {x: 9, z: 4}]}\n"
    assert value_of(text) == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2, "z": 4}}


def test_an_alias_is_a_value_of_its_own() -> None:
    value = value_of("a: &a [1]\nb: *a\n")
    value["a"].append(2)
    assert value["b"] == [1]


def test_every_value_has_its_line() -> None:
    _, places = read_yaml("a: 1\nb:\n  - x\n  - {c: 2,\n     d: 3}\n", "x.yaml")
    lines = {path: places.of(path).line for path in [("a",), ("b",), ("b", 1), ("b", 1, "c"), ("b", 1, "d")]}
    assert lines == {("a",): 1, ("b",): 2, ("b", 1): 4, ("b", 1, "c"): 4, ("b", 1, "d"): 5}


def test_a_bomb_of_aliases_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "more than 20,000 keys and values" in complaint("\n".join(lines))


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False)
    | texts
    | st.sampled_from(["on", "0o7", "1e3", "1:30", "", "~", "null", " a", "a: b", "# x", "- a", "1_0", "<<", "="])
)
documents = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))


@settings(max_examples=40)
@given(documents)
def test_what_is_written_reads_back_equal(document: Any) -> None:
    assert value_of(write_yaml(document)) == document


@given(st.text(st.sampled_from("ab:-{}[],&*!|>'\"#%@` \n\t?<~01.e\\xU"), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read_yaml(text, "x.yaml")
    except SpecError as error:
        assert str(error).startswith("x.yaml")


def test_text_that_yaml_1_1_reads_otherwise_is_written_in_quotes() -> None:
    assert yaml.safe_load(write_yaml({"a": "on", "b": "0o7", "c": "1e3"})) == {"a": "on", "b": "0o7", "c": "1e3"}


@pytest.mark.parametrize(
    "text", ["a: \u00a0adam", "batch\u00a0size: 3", "a:\n \u00a0kind: 1", "a: {b: 3\u200b}", "- sgd\u202f"]
)
def test_a_space_that_nobody_sees_is_named(text: str) -> None:
    with pytest.raises(SpecError, match=r"\(U\+20|\(U\+00A0\)"):
        read_yaml(text, "x.yaml")


def test_quotes_keep_a_no_break_space() -> None:
    assert read_yaml('a: "\u00a0b"\nc: d\u00a0e', "x.yaml")[0] == {"a": "\u00a0b", "c": "d\u00a0e"}
