"""The page about GPUs has the rows that a run fills in."""

from __future__ import annotations

from pathlib import Path

from .shown import SHOWN, filled_in


def test_the_page_has_each_row() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "gpu.md").read_text(encoding="utf-8")
    assert [what for what in SHOWN if f"| {what} |" not in page] == []


def test_a_row_is_shown_where_its_tests_have_passed() -> None:
    outcomes = {"a::test_compiled[x]": "passed", "b::test_nccl.py": "failed"}
    outcomes |= {"c::test_stages_stream[one]": "passed", "c::test_stages_stream[two]": "skipped"}
    assert set(dict(filled_in(outcomes)).values()) == {"shown", "in part", "failed", "missing"}
