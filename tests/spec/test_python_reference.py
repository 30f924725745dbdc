"""`python:package.module.Class`."""

from __future__ import annotations

import pytest

from alray.spec.own_code import PythonReference, parse_python_reference


def test_takes_the_class_from_its_module() -> None:
    reference = parse_python_reference("python:package.module.Class")
    assert reference == PythonReference("package.module", "Class")


def test_a_module_alone_is_enough() -> None:
    assert parse_python_reference("python:my_blocks.Gated") == PythonReference("my_blocks", "Gated")


@pytest.mark.parametrize("text", ["vgg", "python:Gated", "python:", "python:a..B", "python:a.b-c", "python:a.class"])
def test_refusals(text: str) -> None:
    with pytest.raises(ValueError, match=f"^`{text}` "):
        parse_python_reference(text)
