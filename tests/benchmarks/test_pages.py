"""Figures of benchmarks, and the pages that show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import engines, gpu_page, models_page, publish, runs, schedules_page


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
    assert "1.2345 times" in (published.parent / "docs" / "benchmarks.md").read_text(encoding="utf-8")


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
    if name == "models":
        runs.write_results(name, [again, *(listed(each) for each in entries if each is not entries[1])])
    else:
        runs.write_results(name, {entries[1]["class"]: again} if by_name else [again])
    publish.main()
    after = figures_of(published, name)
    assert (list(after.values()) if by_name else after) == [entries[0], again, *entries[2:]]


def listed(entry: dict[str, Any]) -> dict[str, Any]:
    """A model as `benchmarks.models` lists it, before anything is tried."""
    return {key: entry[key] for key in ("from", "family", "parameters")}


def test_models_are_published_as_far_as_they_were_measured(published: Path) -> None:
    """`make models` lists all, then looks at all, then trains all: it may be interrupted in between."""
    before = figures_of(published, "models")
    looked_at = [{key: entry[key] for key in entry if key != "trained"} for entry in before]
    another = {**listed(before[0]), "from": "timm:another"}
    runs.write_results("models", [listed(before[0]), *looked_at[1:], another])
    publish.main()
    assert figures_of(published, "models") == [*before, another]
    refused = {**listed(before[0]), "with": {}, "refused": "for a reason"}
    runs.write_results("models", [refused, *looked_at[1:], {**another, "with": {}}])
    publish.main()
    assert figures_of(published, "models") == [refused, *before[1:], {**another, "with": {}}]


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("engines", "eight, removed, 4"),
        ("split_backward", "eight, 1f1b, 4"),
        ("huggingface", "RemovedForCausalLM"),
        ("exported", {"network": "removed"}),
        ("exported", {"method": "removed"}),
        ("models", {"from": "torchvision:removed"}),
        ("gpu", {"network": "removed"}),
    ],
)
def test_a_case_that_no_longer_exists_is_not_published_again(published: Path, name: str, gone: Any) -> None:
    before = figures_of(published, name)
    if isinstance(gone, str):
        with_removed: Any = {**before, gone: next(iter(before.values()))}
    elif name == "gpu":
        with_removed = {**before, "rows": [*before["rows"], {**before["rows"][0], **gone}]}
    else:
        with_removed = [*before, {**before[0], **gone}]
    (published / f"{name}.json").write_text(json.dumps(with_removed), encoding="utf-8")
    runs.write_results(name, before)
    publish.main()
    assert figures_of(published, name) == before


def test_models_of_a_library_that_is_not_installed_stay(published: Path) -> None:
    before = figures_of(published, "models")
    runs.write_results("models", [entry for entry in before if entry["from"].startswith("torchvision:")])
    publish.main()
    assert figures_of(published, "models") == before


def test_rows_of_one_gpu_get_sessions(published: Path) -> None:
    before = figures_of(published, "gpu")
    mine = [{**row, "step_s": 1.0, "again": []} for row in before["rows"] if row["network"] == "gpt"]
    runs.write_results("gpu", {**before, "besides_tensors_bytes": 1, "rows": mine})
    for _ in range(2):  # what was published once is not published again
        publish.main()
        after = figures_of(published, "gpu")
        assert after["besides_tensors_bytes"] == before["besides_tensors_bytes"]
        for old, row in zip(before["rows"], after["rows"], strict=True):
            further = [each["step_s"] for each in row["again"][len(old["again"]) :]]
            assert {**row, "again": old["again"]} == old and further == ([1.0] if row["network"] == "gpt" else [])


def test_a_way_that_was_measured_later_stands_among_those_of_its_network(published: Path) -> None:
    before = figures_of(published, "gpu")
    (published / "gpu.json").write_text(json.dumps({**before, "rows": before["rows"][1:]}), encoding="utf-8")
    runs.write_results("gpu", {**before, "rows": before["rows"][:1]})
    publish.main()
    assert figures_of(published, "gpu") == before


def test_rows_of_another_gpu_replace_all_that_can_be_measured(published: Path) -> None:
    before = figures_of(published, "gpu")
    of_gpt = [row for row in before["rows"] if row["network"] == "gpt"]
    runs.write_results("gpu", {**before, "device": "another", "rows": of_gpt})
    with pytest.raises(SystemExit, match=r"build/benchmarks/gpu\.json.* delete"):
        publish.main()
    assert figures_of(published, "gpu") == before
    removed = {**before["rows"][0], "way": "removed"}
    (published / "gpu.json").write_text(json.dumps({**before, "rows": [*before["rows"], removed]}), encoding="utf-8")
    runs.write_results("gpu", {**before, "device": "another"})
    publish.main()
    assert figures_of(published, "gpu") == {**before, "device": "another"}


def test_the_page_of_a_gpu_counts_its_sessions() -> None:
    measured = figures_of(runs.RESULTS, "gpu")
    for row in measured["rows"]:
        row["again"] = []
    assert "sessions" not in gpu_page.page(measured)
    first = measured["rows"][0]
    first["again"] = [{key: first[key] for key in ("step_s", "predicted_s", "weights_sha256")} for _ in range(2)]
    text = gpu_page.page(measured)
    assert "up to 3." in text and "in all sessions: 1 of 1 ways" in text


def test_where_a_page_fails_nothing_is_published(published: Path) -> None:
    runs.write_results("clock", {**figures_of(published, "clock"), "steps": 1})
    runs.write_results("laws", {})
    with pytest.raises(KeyError):
        publish.main()
    assert figures_of(published, "clock") == figures_of(Path(runs.__file__).parent / "results", "clock")
    assert not list((published.parent / "docs").iterdir())


def test_what_no_page_shows_is_not_published(published: Path) -> None:
    runs.write_results("of_no_page", {})
    publish.main()
    assert not (published / "of_no_page.json").exists()
    assert {file.stem for file in published.iterdir()} <= publish.PUBLISHED


def test_cases_of_many_stages_alone_have_a_row(published: Path) -> None:
    some = {name: case for name, case in figures_of(published, "engines").items() if "sleeping" in name}
    (row,) = schedules_page.engines(some)
    assert f"| {len(some)} |" in row


def test_a_model_that_a_method_did_not_train_is_not_used() -> None:
    of_torchvision = [each for each in figures_of(runs.RESULTS, "models") if each["from"].startswith("torchvision:")]
    entries = [each for each in of_torchvision if each.get("trained")]
    entries[0]["trained"]["decoupled_greedy"] = "other"
    text = models_page.page(entries, figures_of(runs.RESULTS, "exported"), [])
    name = entries[0]["from"].partition(":")[2]
    assert f"| torchvision | {len(entries)} models for classification | {len(entries) - 1} | `{name}` |" in text
