"""The text that names a user's own class, `python:package.module.Class`: its form; nothing is imported."""

from __future__ import annotations

import keyword
from dataclasses import dataclass

PREFIX = "python:"
FORM = PREFIX + "package.module.Class"


@dataclass(frozen=True)
class PythonReference:
    """A class by name: `module` is dotted, `name` is the class inside it."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.module}.{self.name}"


def is_python_reference(text: str) -> bool:
    """Whether `text` claims to be a reference, well formed or not."""
    return text.startswith(PREFIX)


def parse_python_reference(text: str) -> PythonReference:
    """Take `python:package.module.Class` apart.

    Raises ValueError, with the reason in plain words, where the text has not that form.
    """
    if not is_python_reference(text):
        raise ValueError(f"`{text}` does not begin with `{PREFIX}`")
    parts = text.removeprefix(PREFIX).split(".")
    for part in parts:
        if not part.isidentifier() or keyword.iskeyword(part):
            raise ValueError(f"`{text}` is not of the form {FORM}: `{part}` is no Python name")
    if len(parts) < 2:
        raise ValueError(f"`{text}` names no module: the form is {FORM}")
    return PythonReference(".".join(parts[:-1]), parts[-1])
