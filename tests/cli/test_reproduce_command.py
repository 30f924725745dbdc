"""reproduce: a run again as it was recorded, and where the two part."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import alray as interface
from alray.api.console.display import PlainLines
from alray.api.console.interrupts import Interrupts
from alray.core.run_folder.records import read
from alray.orchestrate import run_spec
from alray.runtime.options import Options

BLOCK = """\
from torch import nn


class Scaled(nn.Module):
    def __init__(self, input, width):
        super().__init__()
        self.conv = nn.Conv2d(input[0], width, 1)

    def forward(self, s, mask=None):
        return self.conv(s) * 1.0
"""
OWN = 'model.components.1={block: "python:scaled.Scaled", width: 2}'


@pytest.fixture
def copied(ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run that has ended, in the current folder."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(ended, "then"))


def test_the_same_on_the_same_stages_and_on_others(alray: Callable[..., Any], copied: Path) -> None:
    said = alray("reproduce", copied, "--output", "now")
    sha256 = json.loads((copied / "summary.json").read_text())["weights_sha256"]
    assert said.code == 0
    assert said.out.splitlines() == [
        "reproduced      18 mini-batches of then",
        f"weights_sha256  {sha256}, the same",
        "evaluations     the same, 2 evaluations",
        "environment     the same",
        "run folder      now",
    ]
    assert json.loads(Path("now/environment.json").read_text())["engine"] == "inline"  # as recorded
    found = interface.reproduce(copied, {"pipeline.stages": 3, "pipeline.schedule": "sequential"}, progress=False)
    assert found.same and found.evaluations == 2
    assert interface.load_run(found.run_dir).summary.partition == [1, 1, 1]


def test_a_run_that_was_stopped_is_done_again_up_to_there(alray: Callable[..., Any], spec: Path) -> None:
    """The learning rate falls over the whole length of the run, so a shorter run would take another course."""
    options = Options(inline=True, run_dir=Path("then"), stop_after=7)
    cosine = ["lr_schedule=cosine", "run.evaluate_every=3 steps"]
    summary = run_spec(spec, cosine, options, PlainLines(io.StringIO(), Interrupts()), Interrupts()).summary
    assert (summary.status, summary.steps) == ("interrupted", 7)
    said = alray("reproduce", "then", "--output", "now", "--json")
    assert (said.code, said.json["same"], said.json["steps"], said.json["evaluations"]) == (0, True, 7, 2)
    assert said.json["weights_sha256"][0] == summary.weights_sha256
    rates = [
        [record.lr for record in read(Path(run) / "records.jsonl") if record.kind == "step"] for run in ("then", "now")
    ]
    assert rates[0] == rates[1] and len(rates[0]) == 7 and len(set(rates[0])) > 1


def test_damaged_weights_are_compared_with_nothing(alray: Callable[..., Any], copied: Path) -> None:
    weights = sorted(copied.glob("checkpoints/*/component-*.safetensors"))[-1]
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    said = alray("reproduce", copied, "--output", "now")
    assert said.code == 2 and weights.name in said.err and "SHA-256" in said.err
    assert not Path("now").exists()


@pytest.mark.full
def test_where_two_runs_part(alray: Callable[..., Any], spec: Path) -> None:
    """The code in the run folder was changed, and the environment it names."""
    Path("scaled.py").write_text(BLOCK, encoding="utf-8")
    assert alray("run", spec, OWN, "optimizer.lr=0.05", "--inline", "--output", "then").code == 0
    code = Path("then/code/scaled.py")
    code.write_text(code.read_text().replace("* 1.0", "* 8.0"), encoding="utf-8")
    environment = json.loads(Path("then/environment.json").read_text())
    Path("then/environment.json").write_text(json.dumps({**environment, "torch": "1.0", "device": "an old one"}))
    assert "scaled.py (changed in the run folder)" in alray("reproduce", "then").err
    said = alray("reproduce", "then", "--output", "now", "--allow-code")
    assert said.code == 1
    then, now = (
        [each for each in read(Path(run, "records.jsonl")) if each.kind == "evaluation"] for run in ("then", "now")
    )
    step = next(old.step for old, new in zip(then, now, strict=True) if told(old) != told(new))
    out = " ".join(said.out.split())
    assert f"they part at the evaluation after mini-batch {step}, epoch " in out
    assert " then, 0." in out
    assert "losses part at mini-batch 1 " in out
    assert "environment torch was 1.0, is " in out and "device was an old one, is " in out


def told(evaluation: Any) -> dict[str, Any]:
    """The accuracies of an evaluation."""
    return evaluation.model_dump(include={"train", "validation", "test", "per_depth"})


@pytest.mark.few
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["optimizer.lr=1"], "these values would make it another run: `optimizer.lr` from "),
        (["run.max_failures=7"], "these values would make it another run: `run.max_failures` from "),
        (["resources.threads=2"], "these values would make it another run: `resources.threads` from 1 to 2"),
        (["--inline", "--address", "10.0.0.1:6379"], "--address: a run with --inline uses no cluster; leave out --inl"),
        (["--address", "127.0.0.1:1"], "no Ray cluster"),
    ],
)
def test_wrong_requests(alray: Callable[..., Any], copied: Path, arguments: list[str], message: str) -> None:
    said = alray("reproduce", copied, *arguments)
    assert said.code == 2 and message in said.errors
    assert "--allow-change" not in said.errors  # an option of `alray resume` alone


def test_a_run_without_weights(alray: Callable[..., Any], copied: Path) -> None:
    shutil.rmtree(copied / "checkpoints")
    assert alray("reproduce", copied, "--json").json["same"]  # the summary still has the hash
    (copied / "summary.json").unlink()
    said = alray("reproduce", copied)
    assert said.code == 2 and "this run has no weights to compare with" in said.err
