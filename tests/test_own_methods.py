"""The page on methods of the user: its method, its test, and what alray says of a method that breaks the contract."""

from __future__ import annotations

import importlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from types import ModuleType
from typing import Any

import pytest

import alray
from alray.core.errors import AlrayError
from alray.core.run_folder.records import StepRecord, read

from .docs.pages import ROOT, write_files

PAGE = "docs/extending.md"


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Iterator[ModuleType]:
    """The page's test as a module, beside its method."""
    assert {"hinted.py", "test_hinted.py"} <= {*write_files(PAGE, tmp_path)}
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


def test_the_debugger_of_the_page_has_the_terminal(
    copied: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lines,) = re.findall(r"^(import pdb.*?)```", (ROOT / PAGE).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    stops = indent(f"print('printed')\n{lines}", 8 * " ")
    file, losses = Path("hinted.py"), "        losses = {"
    text = file.read_text(encoding="utf-8").replace(losses, f"{stops}\n{losses}")
    file.write_text(text, encoding="utf-8")
    shown = io.StringIO()
    monkeypatch.setattr(sys, "__stdin__", io.StringIO("p 6 * 7\ncontinue\n" * 100))
    monkeypatch.setattr(sys, "__stdout__", shown)
    cost = {"forward_s": 1.0, "backward_s": 1.0, "update_s": 1.0}
    only = {"run.steps": 2, "pipeline.stages": 2, "pipeline.costs": [cost] * 3}
    alray.run(copied.SPEC, only, inline=True, output=tmp_path / "run", progress=False)
    assert shown.getvalue().count("(Pdb) 42") >= 2 * 3
    assert "printed" in (tmp_path / "run" / "logs" / "stage-0.log").read_text(encoding="utf-8")


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


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_loss_that_only_some_mini_batches_have_keeps_its_values(
    copied: ModuleType, tmp_path: Path, replicas: int
) -> None:
    """Replicas draw other numbers, so one of them may have it alone: it counts for its part of the mini-batch."""
    file = Path("hinted.py")
    extra = "if torch.rand((), device='cpu') < 0.5:\n            losses['extra'] = 0.5 * losses['own']\n        "
    text = file.read_text(encoding="utf-8").replace(f"return losses, {RETURNED}", f"{extra}return losses, {RETURNED}")
    file.write_text(f"import torch\n{text}", encoding="utf-8")
    heard = Losses()
    alray.run(
        copied.SPEC,
        {"run.steps": 20, "replicas.count": replicas},
        inline=True,
        output=tmp_path / "run",
        progress=False,
        callbacks=[heard],
    )
    recorded = [record for record in read(tmp_path / "run" / "records.jsonl") if isinstance(record, StepRecord)]
    assert [record.losses for record in recorded] == [
        {index: pytest.approx(own) for index, own in losses.items()} for losses in heard.losses
    ]
    parts = [losses[1]["extra"] / losses[1]["own"] for losses in heard.losses if "extra" in losses[1]]
    assert 0 < len(parts) < 20 and max(parts) == pytest.approx(0.5)
    assert (min(parts) < 0.49) == (replicas > 1)


class Losses(alray.Callback):
    """Keeps the losses that it hears."""

    def __init__(self) -> None:
        self.losses: list[Any] = []

    def on_step(self, record: Any) -> None:
        self.losses.append(record.losses)


def test_what_no_edge_carries_is_refused_on_one_stage(copied: ModuleType) -> None:
    file = Path("hinted.py")
    text = file.read_text(encoding="utf-8").replace('"hint"', '"a_hint_of_the_scores"')
    file.write_text(text, encoding="utf-8")
    with pytest.raises(AlrayError, match="1 to 16 ASCII characters") as caught:
        alray.plan(copied.SPEC, {"pipeline.stages": 1}, progress=False)
    assert caught.value.problems[0].key == "method.kind"


def test_a_loss_on_what_comes_in_is_refused_on_one_stage(copied: ModuleType) -> None:
    """The first component of a stage alone has its input there: it trained where each stage had one component."""
    file = Path("hinted.py")
    text = file.read_text(encoding="utf-8").replace("        losses = {", '        incoming["s"]\n        losses = {')
    file.write_text(text, encoding="utf-8")
    with pytest.raises(AlrayError, match="KeyError") as caught:
        alray.plan(copied.SPEC, {"pipeline.stages": 1}, progress=False)
    problem = caught.value.problems[0]
    assert 'incoming["s"]' in file.read_text(encoding="utf-8").splitlines()[problem.line - 1]
