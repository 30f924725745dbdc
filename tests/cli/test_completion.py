"""What a shell is told after a Tab. `alray --install-completion` makes it ask like this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.few
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("alray re", ["resume", "reproduce", "report"]),
        ("alray run --inl", ["--inline"]),
        ("alray run ", []),  # then the shell itself offers files
    ],
)
def test_what_comes_next(
    line: str, words: list[str], python: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_ALRAY_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    said = python("from alray.cli.main import main; main()")
    assert said.out.split() == words
