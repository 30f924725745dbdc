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
        ("alray jobs st", ["status", "stop"]),
        ("alray run x.yaml optimizer.l", ["optimizer.lr=", "optimizer.look_ahead="]),
        ("alray run x.yaml run.ch", ["run.checkpoint.every=", "run.checkpoint.keep="]),
        ("alray study x.yaml max_c", ["max_concurrent="]),
        ("alray run x.yaml run.epochs=", []),
        ("alray init --from quick", ["quickstart"]),
        ("alray init --from al/vgg", ["al/vgg_cifar10", "al/vgg_tiny_imagenet"]),
        ("alray export runs/x --format t", ["torch_export"]),
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
