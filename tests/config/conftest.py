"""A small correct spec that tests change in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from alray.config.loading.load import load_spec
from alray.core.errors import SpecError

SMALL = """\
name: small
data: {source: digits}
model:
  components:
    - {block: vgg, channels: [4]}
    - {block: vgg, channels: [8], pool: true}
method: {kind: associated_learning}
optimizer: {kind: adam}
pipeline: {stages: 2}
run: {epochs: 1}
"""


@pytest.fixture
def small() -> str:
    """The text of a correct spec, with two components on two stages."""
    return SMALL


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes text to `x.yaml`, the name that messages then show, in a folder that becomes the current one."""
    monkeypatch.chdir(tmp_path)

    def write_spec(text: str) -> Path:
        Path("x.yaml").write_text(text, encoding="utf-8")
        return Path("x.yaml")

    return write_spec


@pytest.fixture
def complaints(write: Callable[[str], Path]) -> Callable[..., list[str]]:
    """What loading a text, with overrides, complains of: whole messages, one a problem."""

    def load(text: str, overrides: Sequence[str] = ()) -> list[str]:
        with pytest.raises(SpecError) as caught:
            load_spec(write(text), overrides)
        return str(caught.value).split("\n")

    return load
