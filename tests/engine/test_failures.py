"""Stages that die or stop: noticed, named, and the run still ends in the same bits with nothing left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil
import pytest

from alray.errors import NonFiniteLoss
from alray.graph.ray_graph import RayGraph
from alray.stage.telemetry import StageStatus

from .conftest import LONG, Watching
from .test_same_bits import same


@pytest.fixture
def victims(monkeypatch):
    """Process ids of the stages of the graph that was started last, by stage; the driver asks them more often."""
    monkeypatch.setattr("alray.run.driver._POLL_S", 0.1)
    processes: dict[int, int] = {}
    start = RayGraph.start

    def started(self, assignments) -> None:
        start(self, assignments)
        processes.clear()
        processes.update({place: where.pid for place, where in enumerate(self._places)})

    monkeypatch.setattr(RayGraph, "start", started)
    return processes


@dataclass
class Striking(Watching):
    """Sends a signal to one stage after another, each in an attempt of its own.

    strikes: (stage, mini-batches that stage 0 must have done by then), in this order.
    """

    victims: dict[int, int] = field(default_factory=dict)
    strikes: list[tuple[int, int]] = field(default_factory=list)
    sign: int = signal.SIGKILL
    struck: list[int] = field(default_factory=list)
    """Process ids."""

    def statuses(self, statuses: Sequence[StageStatus]) -> None:
        if not self.strikes or not set(self.struck).isdisjoint(self.victims.values()):
            return  # the attempt that was struck has not ended yet
        stage, step = self.strikes[0]
        if statuses[0].step >= step:
            del self.strikes[0]
            self.struck.append(self.victims[stage])
            os.kill(self.victims[stage], self.sign)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "strikes", [[(0, 2)], pytest.param([(0, 2), (1, 20), (2, 40)], marks=pytest.mark.full)], ids=["one", "each"]
)
def test_killed(workshop, longer_reference, local_ray, victims, strikes) -> None:
    watching = Striking(victims=victims, strikes=list(strikes))
    run = workshop.run("pipeline.partition=[1,2,1]", *LONG, inline=False, watching=watching)
    same(run, longer_reference)
    assert not watching.strikes, "the run was over before every stage was killed"
    assert [failure.stage for failure in run.summary.failures] == [stage for stage, _ in strikes]
    for failure, pid in zip(run.summary.failures, watching.struck, strict=True):
        assert failure.message.startswith(f"stage {failure.stage} died (process {pid} on ")
    assert not any(psutil.pid_exists(pid) for pid in [*watching.struck, *victims.values()])


@pytest.mark.timeout(240)
def test_stopped(workshop, longer_reference, local_ray, victims, monkeypatch) -> None:
    monkeypatch.setattr("alray.plan.make.LEAST_DEADLINE_S", 4.0)
    watching = Striking(victims=victims, strikes=[(1, 5)], sign=signal.SIGSTOP)
    run = workshop.run("pipeline.partition=[1,2,1]", *LONG, inline=False, watching=watching)
    same(run, longer_reference)
    (failure,) = run.summary.failures
    assert failure.stage == 1
    assert failure.message.startswith("stage 1 has not answered for ")
    assert not psutil.pid_exists(watching.struck[0]), "the stopped process was left behind"


def test_too_many_failures(workshop, longer_reference, local_ray, victims) -> None:
    watching = Striking(victims=victims, strikes=[(1, 1)])
    run = workshop.run("pipeline.partition=[2,2]", *LONG, "run.max_failures=0", inline=False, watching=watching)
    assert run.summary.status == "failed"
    assert "stage 1 died" in str(run.error)
    assert "; that was failure 1 since the checkpoint at mini-batch " in str(run.error)
    assert str(run.error).endswith("; raise run.max_failures, or mend the cause and `alray resume` the run")
    same(workshop.resume(), longer_reference)


@pytest.mark.parametrize("inline", [True, False])
def test_non_finite_loss(workshop, processes, inline) -> None:
    run = workshop.run(
        "optimizer.kind=sgd",
        "optimizer.lr=1e30",
        "pipeline.partition=[1,3]",
        "run.checkpoint.every=1 steps",
        inline=inline,
    )
    assert run.summary.status == "failed"
    assert isinstance(run.error, NonFiniteLoss)
    message = str(run.error)
    assert "component " in message and " loss is " in message and " at mini-batch " in message
    assert len(run.summary.failures) == 1, "the same bits would fail again: there is nothing to try anew"


@pytest.mark.parametrize("inline", [True, False])
def test_own_code_that_raises(workshop, processes, inline) -> None:
    (workshop.folder / "bad.py").write_text(
        "import torch\n"
        "class Bad(torch.nn.Identity):\n"
        "    def __init__(self, input): super().__init__(); self.calls = 0\n"
        "    def forward(self, s, mask=None):\n"
        "        self.calls += s.device.type != 'meta'\n"
        "        print('call', self.calls)\n"
        "        if self.calls > 100: raise KeyError('nothing there')\n"
        "        return s\n"
    )
    run = workshop.run(
        "model.components.3={block: 'python:bad.Bad'}", "pipeline.partition=[3,1]", "run.epochs=20", inline=inline
    )
    assert run.summary.status == "failed"
    log = workshop.folder / "run" / "logs" / "stage-1.log"
    assert str(run.error) == (
        f"stage 1 (components 3 to 3) raised KeyError: 'nothing there'; the whole traceback is in {log}"
    )
    assert "Traceback" in log.read_text()
    assert "call 100" in "".join(path.read_text() for path in log.parent.iterdir())
