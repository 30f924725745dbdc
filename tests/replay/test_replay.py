"""The answers to the soonest inputs are those that are recorded, and a replay finds each planted change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from .compare import Meant, compare, read_meant
from .recorded import ANYWHERE, RECORDED, digests_of, machine, played

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.long


@pytest.mark.timeout(900)
def test_the_answers_are_those_that_are_recorded() -> None:
    """Where they are not, and the difference is meant: `python -m tests.replay.recorded` records them anew."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    before, after = recorded["answers"], digests_of(ROOT)
    if recorded["machine"] != machine():
        before, after = ({n: each[n] for n in each if n.startswith(ANYWHERE)} for each in (before, after))
    assert before, "nothing is recorded"
    assert compare(before, after, read_meant()).unmeant == []


def test_a_difference_is_meant_where_its_reason_is_written_down() -> None:
    found = compare(
        {"a": "1", "b": "1", "c": "1"}, {"a": "2", "b": "1", "d": "1"}, [Meant("^a$", "faster"), Meant("e", "")]
    )
    assert (found.unmeant, found.meant, found.stale) == (["c", "d"], {"a": "faster"}, ["e"])
    assert not found.is_green
    assert compare({"a": "1"}, {"a": "2"}, [Meant("a", "faster")]).is_green


class Planted(NamedTuple):
    """A change of one file of alray. only: the inputs that are played. found: the end of the answer that differs."""

    what: str
    file: str
    before: str
    after: str
    only: str
    found: str


PLANTED = (
    Planted("a seed", "core/randomness/seeds.py", "str(seed), *", "str(seed + 1), *", "mlp_diabetes", ": weights"),
    Planted("a default", "config/sections/optimizer.py", "(0.9, 0.999)", "(0.9, 0.99)", "quickstart", ": weights"),
    Planted(
        "an order of sums",
        "models/readout.py",
        "return words.sum(1) /",
        "return words.flip(1).sum(1) /",
        "ledger al_texts",
        ": weights",
    ),
    Planted(
        "a lost key",
        "cli/run.py",
        'summary.model_dump(mode="json")',
        'summary.model_dump(mode="json", exclude={"parameters"})',
        "quickstart",
        ": run",
    ),
    Planted(
        "a message's line", "config/loading/yaml_text.py", "file, line + 1, text", "file, line, text", "bad specs", ""
    ),
    Planted("a hint", "config/loading/yaml_text.py", "indent with spaces", "use spaces", "bad specs", ""),
    Planted(
        "a schedule's order",
        "parts/schedules/one_f_one_b.py",
        "for number in range(micro_batches):",
        "for number in [1, 0, *range(2, micro_batches)]:",
        "ledger bp_1f1b",
        "",
    ),
    Planted(
        "a dropped record",
        "runtime/stage/cuts.py",
        "        self._emit(record)\n",
        "",
        "quickstart",
        ": records",
    ),
    Planted("a level", "studies/confidence.py", "LEVEL = 0.9\n", "LEVEL = 0.8\n", "report methods", ": verdicts"),
    Planted(
        "a plan's memory",
        "planning/prediction/memory.py",
        "snapshot_bytes=parameters + optimizer if",
        "snapshot_bytes=parameters if",
        "quickstart",
        ": plan",
    ),
)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of this tree, into which changes are planted."""
    tree = tmp_path_factory.mktemp("copied") / "tree"
    ignored = shutil.ignore_patterns(".git", ".venv*", "build", "__pycache__", ".*_cache", "runs")
    yield shutil.copytree(ROOT, tree, ignore=ignored)
    shutil.rmtree(tree)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.what)
def test_a_planted_change_is_found(copied: Path, planted: Planted) -> None:
    before = played(copied, "--only", planted.only)
    file = copied / "alray" / planted.file
    text = file.read_text(encoding="utf-8")
    assert text.count(planted.before) >= 1, "the place is another one now"
    file.write_text(text.replace(planted.before, planted.after), encoding="utf-8")
    try:
        found = compare(before, played(copied, "--only", planted.only), [])
    finally:
        file.write_text(text, encoding="utf-8")
    assert any(name.endswith(planted.found) for name in found.unmeant)
