"""`python:package.module.Class`."""

from __future__ import annotations

import pytest

from alray.spec.own_code import PythonReference, is_python_reference, parse_python_reference


def test_takes_the_class_from_its_module() -> None:
    reference = parse_python_reference("python:package.module.Class")
    assert reference == PythonReference("package.module", "Class")
    assert str(reference) == "python:package.module.Class"


def test_a_module_alone_is_enough() -> None:
    assert parse_python_reference("python:my_blocks.Gated") == PythonReference("my_blocks", "Gated")


def test_only_the_prefix_makes_a_reference() -> None:
    assert is_python_reference("python:") and not is_python_reference("vgg")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vgg", "`vgg` does not begin with `python:`"),
        ("python:Gated", "`python:Gated` names no module: the form is python:package.module.Class"),
        ("python:", "`python:` is not of the form python:package.module.Class: `` is no Python name"),
        ("python:a..B", "`python:a..B` is not of the form python:package.module.Class: `` is no Python name"),
        ("python:a.b-c", "`python:a.b-c` is not of the form python:package.module.Class: `b-c` is no Python name"),
        (
            "python:a.class",
            "`python:a.class` is not of the form python:package.module.Class: `class` is no Python name",
        ),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"\A") as caught:
        parse_python_reference(text)
    assert str(caught.value) == message
