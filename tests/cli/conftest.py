"""A spec that trains in a second, the command in this process and in a separate one, and a run that has ended."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from alray.cli.main import execute

from ..told import in_lines

TINY = """\
name: tiny
data: {source: synthetic, shape: [1, 4, 4], classes: 3, samples: 100, batch_size: 10}
model:
  components:
    - {block: vgg, channels: [2]}
    - {block: vgg, channels: [2]}
    - {block: vgg, channels: [4], pool: true}
method: {kind: associated_learning, label_dim: 4}
pipeline: {stages: 2, costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost]}
run: {epochs: 2}
"""
"""Costs are given: to measure them takes longer than the run. `COUNTED` is for tests that look at them."""

COUNTED = "pipeline.costs=null"


class Tty(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


class Answer(NamedTuple):
    """What one command line came to."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> str:
        """Standard error with each problem in one line."""
        return in_lines(self.err)

    @property
    def json(self) -> Any:
        """Standard output as the one JSON value it has to be."""
        return json.loads(self.out)


@pytest.fixture(scope="module", autouse=True)
def networks_are_counted_once(counted_once: None) -> None:
    """In all of these tests."""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny spec as `x.yaml`, in a folder that becomes the current one."""
    monkeypatch.chdir(tmp_path)
    path = Path("x.yaml")
    path.write_text(TINY, encoding="utf-8")
    return path


@pytest.fixture
def command() -> list[str]:
    """The console script, to be run as a separate process."""
    return [sys.executable, "-c", "from alray.cli.main import main; main()"]


@pytest.fixture
def alray(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs one command line in this process."""

    def run(*arguments: str | Path) -> Answer:
        capsys.readouterr()
        code = execute([str(argument) for argument in arguments])
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture
def python() -> Callable[[str], Answer]:
    """Runs a program in a separate Python."""

    def run(program: str) -> Answer:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        return Answer(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of the tiny spec, finished, in one process."""
    folder = tmp_path_factory.mktemp("ended")
    (folder / "x.yaml").write_text(TINY, encoding="utf-8")
    assert execute(["run", str(folder / "x.yaml"), "--inline", "--output", str(folder / "run")]) == 0
    return folder / "run"
