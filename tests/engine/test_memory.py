"""Runs that find no memory, and runs that keep within theirs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from alray.cli.main import execute
from alray.core.errors import RunError, StageError
from alray.runtime.device import memory_used

from .conftest import Workshop

HUNGRY = '''
import torch
from torch import nn


class Hungry(nn.Module):
    """Asks for a petabyte in its forward number `at`, and in every one behind it."""

    def __init__(self, input, at):
        super().__init__()
        self.at, self.calls = at, 0
        self.conv = nn.Conv2d(input[0], 4, 1)

    def forward(self, s, mask=None):
        self.calls += 1
        if self.calls >= self.at and s.device.type == "cpu":
            torch.empty(2**50, dtype=torch.uint8)
        return self.conv(s)
'''
COST = "{forward_s: 0.001, backward_s: 0.001, update_s: 0.001}"
COSTS = f"pipeline.costs=[{COST}, {COST}]"
"""Given, so that nothing is probed."""


@pytest.fixture
def hungry(workshop: Workshop) -> Workshop:
    (workshop.folder / "hungry.py").write_text(HUNGRY)
    return workshop


def test_memory_is_that_of_a_command_and_of_its_only_run(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not of a Python program, which may have trained something else before, nor of a run after another one."""
    monkeypatch.setattr(memory_used, "_had_a_stage", False)
    assert workshop.run("pipeline.stages=1").summary.peak_memory_bytes == [None]

    def of_command(name: str) -> int | None:
        output = ["--output", str(workshop.folder / name)]
        assert execute(["run", str(workshop.spec), "pipeline.stages=1", "--inline", "--json", *output]) == 0
        (peak,) = json.loads(capsys.readouterr().out)["peak_memory_bytes"]
        return peak

    assert (of_command("first") or 0) > 0 and of_command("second") is None


def components(at: int) -> str:
    return f'model.components=[{{block: vgg, channels: [4]}}, {{block: "python:hungry.Hungry", at: {at}}}]'


@pytest.mark.few
def test_a_stage_is_named_with_all_that_it_holds(hungry: Workshop) -> None:
    """With several virtual stages, too; the last of them fails."""
    vgg = "{block: vgg, channels: [4], repeat: 4}"
    made = f'model.components=[{vgg}, {{block: "python:hungry.Hungry", at: 3}}]'
    costs = f"pipeline.costs=[{', '.join([COST] * 5)}]"
    layout = ("pipeline.partition=[2, 1, 1, 1]", "pipeline.virtual_stages=2", costs)
    (problem,) = hungry.run(made, *layout).error.problems
    assert problem.message.startswith("stage 1 (components 2 and 4) ran out of memory")


def test_a_stage_that_finds_no_memory_ends_the_run(hungry: Workshop) -> None:
    """On the second stage, in its third mini-batch; it is not tried again."""
    finished = hungry.run(components(at=3), COSTS, "pipeline.partition=[1, 1]")
    error = finished.error
    assert isinstance(error, StageError)
    (problem,) = error.problems
    assert problem.message.startswith("stage 1 (component 1) ran out of memory")
    assert "1125899906842624 bytes" in problem.message and problem.hint
    assert finished.summary.status == "failed"
    assert len(finished.summary.failures) == 1
    assert "DefaultCPUAllocator" in (hungry.folder / "run" / "logs" / "stage-1.log").read_text()


def test_the_probe_that_finds_no_memory(hungry: Workshop) -> None:
    with pytest.raises(RunError) as caught:
        hungry.run(components(at=1), "pipeline.costs=null")
    (problem,) = caught.value.problems
    assert problem.key == "model.components[1]"
    assert problem.message.startswith("component 1 (block `python:hungry.Hungry`) ran out of memory")
    assert "1125899906842624 bytes" in problem.message


def test_the_number_of_micro_batches_found_is_that_of_the_run(workshop: Workshop) -> None:
    """It is in the run folder's spec, and gives the weights that it gives when it is asked for."""
    by_gpipe = ("method={kind: backpropagation}", "pipeline.schedule=gpipe", "pipeline.micro_batch_norm=accept")
    by_gpipe += ("run.epochs=1",)
    asked = workshop.run(*by_gpipe, "pipeline.micro_batches=4", name="asked")
    plan = json.loads((workshop.folder / "asked" / "plan.json").read_text())
    limit = plan["stage_plans"][0]["memory"]["total_bytes"]
    found = workshop.run(*by_gpipe, "pipeline.micro_batches=auto", f"resources.memory_bytes={limit}", name="found")
    spec = yaml.safe_load((Path(found.summary.run_dir) / "spec.yaml").read_text())
    assert spec["pipeline"]["micro_batches"] == 4
    assert found.summary.weights_sha256 == asked.summary.weights_sha256
