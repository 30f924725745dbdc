"""Stages that die or stop: noticed, named, and the run still ends in the same bits with nothing left behind."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence

import pytest

from alray.core.errors import NonFiniteLoss
from alray.runtime.stage.telemetry import StageStatus

from .conftest import Watching
from .test_same_bits import same


@pytest.mark.few
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


@pytest.mark.few
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
    message = str(run.error)
    place = (
        f"{workshop.folder / 'bad.py'}:7: model.components[3]: block `python:bad.Bad` raised KeyError in the forward"
    )
    assert message.startswith(place) and "'nothing there'" in message and str(log) in message
    assert "Traceback" in log.read_text()
    assert "call 100" in "".join(path.read_text() for path in log.parent.iterdir())


@pytest.mark.few
@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (("data.workers=0",), "for sample 77 of split `train` (deadline 4 s)"),
        (("data.workers=1", "pipeline.stages=1"), ", 77, "),
    ],
    ids=["in the stage", "in a worker"],
)
def test_a_sample_that_never_comes(workshop, processes, overrides, named) -> None:
    """It is read after the first mini-batches, which the driver reads too."""
    (workshop.folder / "own_data.py").write_text(
        "import time, torch\n"
        "class Endless:\n"
        "    def __len__(self): return 150\n"
        "    def __getitem__(self, index):\n"
        "        if index == 77: time.sleep(600)\n"
        "        return torch.full((2, 8, 8), index / 150), index % 4\n"
        "class Samples:\n"
        "    classes = ('a', 'b', 'c', 'd')\n"
        "    def open(self, split): return Endless() if split == 'train' else None\n"
    )
    data = "data={source: 'python:own_data.Samples', batch_size: 16, validation_fraction: 0}"
    run = workshop.run(data, *overrides, "run={epochs: 3, deadline_s: 4}", inline=False)
    assert run.summary.status == "failed" and len(run.summary.failures) == 2
    assert "stage 0 has waited" in str(run.error) and named in str(run.error), run.error


@pytest.mark.full
def test_a_loader_worker_that_is_killed(workshop, reference) -> None:
    """The machine may have killed it, for memory say: the run continues from its last checkpoint."""
    killed = []

    def kill(statuses: Sequence[StageStatus]) -> None:
        if not killed and statuses[0].step >= 3:
            killed.extend(multiprocessing.active_children())
            killed[0].kill()

    slowly = ("data.workers=1", "pipeline.stages=2", "model.components.2.sleep_s=0.1")
    run = workshop.run(*slowly, watching=Watching(on_statuses=kill))
    (failure,) = run.summary.failures
    assert "a process that prepares mini-batches ended" in failure.message
    same(run, reference)


@pytest.mark.full
def test_one_process_waits_for_a_stage_that_takes_long(workshop, reference) -> None:
    """As when it was suspended. It cannot end the stage, which would go on and draw random numbers beside the next."""
    (workshop.folder / "late.py").write_text(
        "import time\n"
        "from own_blocks import Dropped\n"
        "class Late(Dropped):\n"
        "    calls = 0\n"
        "    def forward(self, s, mask=None):\n"
        "        Late.calls += s.device.type != 'meta'\n"
        "        if Late.calls == 30: time.sleep(1.5)\n"
        "        return super().forward(s)\n"
    )
    late = "model.components.3={block: 'python:late.Late', width: 7}"
    run = workshop.run(late, "pipeline.stages=1", "run.deadline_s=0.3")
    assert run.summary.failures == []
    same(run, reference)
