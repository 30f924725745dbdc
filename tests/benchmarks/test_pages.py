"""Figures of benchmarks, and the pages that show them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import publish, runs


def test_only_publishing_changes_what_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = json.loads((runs.RESULTS / "clock.json").read_text(encoding="utf-8"))
    figures["ratio"]["mean"] = 1.2345
    published, docs, measured = tmp_path / "results", tmp_path / "docs", tmp_path / "build" / "benchmarks"
    published.mkdir()
    docs.mkdir()
    for file in runs.RESULTS.iterdir():
        (published / file.name).write_bytes(file.read_bytes())
    for module in (runs, publish):
        monkeypatch.setattr(module, "MEASURED", measured)
        monkeypatch.setattr(module, "RESULTS", published)
    monkeypatch.setattr(publish, "DOCS", docs)
    runs.write_results("clock", figures)
    assert (published / "clock.json").read_bytes() == (Path(runs.__file__).parent / "results/clock.json").read_bytes()
    publish.main()
    assert "**1.2345**" in (docs / "benchmarks.md").read_text(encoding="utf-8")
