"""Figures of benchmarks, and the pages that show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import engines, models_page, publish, runs, schedules_page


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the committed figures, beside empty folders of what is measured and of pages."""
    published, docs = tmp_path / "results", tmp_path / "docs"
    published.mkdir()
    docs.mkdir()
    for file in runs.RESULTS.iterdir():
        (published / file.name).write_bytes(file.read_bytes())
    for module in (runs, publish):
        monkeypatch.setattr(module, "MEASURED", tmp_path / "build" / "benchmarks")
        monkeypatch.setattr(module, "RESULTS", published)
    monkeypatch.setattr(publish, "DOCS", docs)
    return published


def figures_of(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def test_only_publishing_changes_what_is_committed(published: Path) -> None:
    figures = figures_of(published, "clock")
    figures["ratio"]["mean"] = 1.2345
    before = (published / "clock.json").read_bytes()
    runs.write_results("clock", figures)
    assert (published / "clock.json").read_bytes() == before
    publish.main()
    assert "**1.2345**" in (published.parent / "docs" / "benchmarks.md").read_text(encoding="utf-8")


def test_a_case_that_was_measured_alone_leaves_the_others(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, split = figures_of(published, "engines"), figures_of(published, "split_backward")
    name = "eight, gpipe, 8"
    found = {**before[name], "ratios": [0.1234]}
    monkeypatch.setattr(engines, "measure", lambda *given: found)
    monkeypatch.setattr(engines, "told", lambda *given: "")
    engines.main([name])
    publish.main()
    assert figures_of(published, "engines") == {**before, name: found}
    assert figures_of(published, "split_backward") == split


@pytest.mark.parametrize(
    ("name", "keys"), [("models", ["from"]), ("exported", ["network", "method"]), ("huggingface", ["class"])]
)
def test_a_model_that_was_measured_alone_leaves_the_others(published: Path, name: str, keys: list[str]) -> None:
    before = figures_of(published, name)
    by_name = isinstance(before, dict)
    entries = list(before.values()) if by_name else before
    again = {**entries[1], "again": True}
    runs.write_results(name, {entries[1]["class"]: again} if by_name else [again])
    publish.main()
    after = figures_of(published, name)
    assert (list(after.values()) if by_name else after) == [entries[0], again, *entries[2:]]


def test_a_model_that_is_only_listed_replaces_none_that_was_tried(published: Path) -> None:
    before = figures_of(published, "models")
    listed = [{key: before[0][key] for key in ("from", "family", "parameters")}, {**before[0], "from": "timm:another"}]
    runs.write_results("models", listed)
    publish.main()
    assert figures_of(published, "models") == [*before, listed[1]]


def test_rows_of_one_gpu_get_sessions_and_stand_beside_none_of_another(published: Path) -> None:
    before = figures_of(published, "gpu")
    mine = [{**row, "step_s": 1.0, "again": []} for row in before["rows"] if row["network"] == "gpt"]
    runs.write_results("gpu", {**before, "rows": mine})
    for _ in range(2):  # what was published once is not published again
        publish.main()
        for old, row in zip(before["rows"], figures_of(published, "gpu")["rows"], strict=True):
            further = [each["step_s"] for each in row["again"][len(old["again"]) :]]
            assert {**row, "again": old["again"]} == old and further == ([1.0] if row["network"] == "gpt" else [])
    runs.write_results("gpu", {**before, "device": "another", "rows": mine})
    with pytest.raises(SystemExit, match="measure all of them"):
        publish.main()
    runs.write_results("gpu", {**before, "device": "another"})
    publish.main()
    assert figures_of(published, "gpu")["device"] == "another"


def test_where_a_page_fails_nothing_is_published(published: Path) -> None:
    runs.write_results("clock", {**figures_of(published, "clock"), "steps": 1})
    runs.write_results("laws", {})
    with pytest.raises(KeyError):
        publish.main()
    assert figures_of(published, "clock") == figures_of(Path(runs.__file__).parent / "results", "clock")
    assert not list((published.parent / "docs").iterdir())


def test_what_no_page_shows_is_not_published(published: Path) -> None:
    runs.write_results("slow_links", {})
    publish.main()
    assert not (published / "slow_links.json").exists()
    assert {file.stem for file in published.iterdir()} <= publish.PUBLISHED


def test_cases_of_many_stages_alone_have_a_page(published: Path) -> None:
    some = {name: case for name, case in figures_of(published, "engines").items() if "sleeping" in name}
    text = "\n".join(schedules_page.engines(some))
    assert f"of all {len(some)} cases" in text and "on two stages" not in text


def test_a_model_that_a_method_did_not_train_is_not_trained_by_every_method() -> None:
    entries = [each for each in figures_of(runs.RESULTS, "models") if each["from"].startswith("torchvision:")]
    trained = [each for each in entries if each.get("trained")]
    trained[0]["trained"]["decoupled_greedy"] = "other"
    text = models_page.page(entries, figures_of(runs.RESULTS, "exported"), [])
    assert f" {len(trained) - 1} of them trained by every method." in text
