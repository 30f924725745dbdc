"""Damaged input ends in one error: no traceback, no code run, no case that takes long or much memory.

`tests/damage` draws the cases. Each part here takes another seed, and the same seed gives the same cases.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]


def _wrong(kind: str, seed: int, cases: int, folder: Path) -> list[str]:
    """What is wrong with so many cases, which run in a separate process, so that its memory is theirs."""
    command = [sys.executable, "-m", f"tests.damage.{kind}", str(seed), str(cases), str(folder)]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wrong: list[str] = json.loads(done.stdout.splitlines()[-1])
    return wrong


@pytest.mark.few
@pytest.mark.parametrize(("kind", "cases"), [("specs", 15), ("folders", 2)])
def test_damaged_input_is_one_error(kind: str, cases: int, tmp_path: Path) -> None:
    assert _wrong(kind, 1, cases, tmp_path) == []


@pytest.mark.full
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(10))
def test_1000_damaged_specs(seed: int, tmp_path: Path) -> None:
    assert _wrong("specs", 100 + seed, 1_000, tmp_path) == []


@pytest.mark.full
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(4))
def test_250_damaged_folders(seed: int, tmp_path: Path) -> None:
    assert _wrong("folders", 100 + seed, 250, tmp_path) == []
