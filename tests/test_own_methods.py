"""The page on methods of the user: its method, its test, and what alray says of a method that breaks the contract."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import alray
from alray.core.errors import AlrayError

from .docs.pages import write_files


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Iterator[ModuleType]:
    """The page's test as a module, beside its method."""
    assert write_files("docs/own_methods.md", tmp_path) == ["hinted.py", "test_hinted.py"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield importlib.import_module("test_hinted")
    for name in ("hinted", "test_hinted"):
        sys.modules.pop(name, None)


@pytest.mark.full
def test_the_page_s_own_tests(copied: ModuleType, tmp_path: Path) -> None:
    copied.test_two_stages_train_what_one_trains(tmp_path / "stages")
    copied.test_a_resume_ends_in_the_same_weights(tmp_path / "resume")
    copied.test_it_learns(tmp_path / "learns")


@pytest.mark.full
def test_the_page_s_test_on_ray(copied: ModuleType, tmp_path: Path) -> None:
    copied.test_two_stages_train_what_one_trains(tmp_path, inline=False)


RETURNED = '{"labels": incoming["labels"], "hint": pass_on(scores)}'


@pytest.mark.few
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("    def labels_out", "    def labels_out_of_another_name", "`labels_out(0)` does not name it"),
        ("pass_on(scores)}", "pass_on(scores)[:, :3]}", "by `labels_out(0)` it is [32, 10]"),
        ("pass_on(scores)}", "pass_on(scores).mean(0)}", "by `labels_out(0)` it is [32, 10]"),
        ("pass_on(scores)}", "pass_on(scores).double()}", "of [32, 10] float64"),
        ("pass_on(scores)}", "scores}", "with its gradient graph"),
        (RETURNED, '{"labels": incoming["labels"]}', "returns no `hint`"),
        (f"losses, {RETURNED}", "losses", "in place of two dictionaries"),
        (f"losses, {RETURNED}", f"{{'own': losses['own'].detach()}}, {RETURNED}", "no scalar tensor with a gradient"),
    ],
)
def test_a_method_that_sends_something_else_is_refused_on_one_stage(
    copied: ModuleType, before: str, after: str, said: str
) -> None:
    """By `plan`, before anything is trained: it also passed `validate --deep`, the probe and one stage."""
    file = Path("hinted.py")
    text = file.read_text(encoding="utf-8")
    assert before in text
    file.write_text(text.replace(before, after), encoding="utf-8")
    with pytest.raises(AlrayError) as caught:
        alray.plan(copied.SPEC, {"pipeline.stages": 1}, progress=False)
    problem = caught.value.problems[0]
    assert said in problem.message
    assert (problem.key, Path(str(problem.file)).name) == ("method.kind", "hinted.py")
    assert "def local_losses" in file.read_text(encoding="utf-8").splitlines()[problem.line - 1]


def test_what_no_edge_carries_is_refused_on_one_stage(copied: ModuleType) -> None:
    file = Path("hinted.py")
    text = file.read_text(encoding="utf-8").replace('"hint"', '"a_hint_of_the_scores"')
    file.write_text(text, encoding="utf-8")
    with pytest.raises(AlrayError, match="1 to 16 ASCII characters") as caught:
        alray.plan(copied.SPEC, {"pipeline.stages": 1}, progress=False)
    assert caught.value.problems[0].key == "method.kind"
