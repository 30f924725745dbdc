"""What a stage needs before its first mini-batch, and what is left if the driver fails while stages start."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from alray.core.run_folder.store import mark
from alray.orchestrate import plan_spec
from alray.runtime.options import Options
from alray.runtime.runner.driver import assignments
from alray.runtime.stage.assignment import Start

from .conftest import Watching

STAGE = """
import pickle, sys, time
from alray.runtime.graph.actor import StageActor
from alray.runtime.rendezvous.store import Meeting

assignment, token = pickle.load(sys.stdin.buffer)
stage = StageActor(assignment, token)
stage.start(Meeting(None, None))
status = stage.poll(0)
while not status.finished:
    time.sleep(0.02)
    status = stage.poll(0)
assert status.error is None, status.detail
heavy = ("torch._dynamo", "torch._inductor", "torch.distributed.pipelining", "sklearn", "tensorboardX", "torchvision")
print(status.step, [name for name in heavy if name in sys.modules], file=sys.__stdout__)
"""
"""A stage as its process runs it, to its end."""


OPTIMIZERS = ["adam", *[pytest.param(name, marks=pytest.mark.full) for name in ("muon", "lamb")]]


@pytest.mark.full
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_stage_of_local_losses_does_not_load_torchs_compiler(workshop, optimizer) -> None:
    """It would take every stage more than a second."""
    overrides = ["run.steps=9", "data={source: digits, batch_size: 16}", f"optimizer={optimizer}"]
    workload, plan = plan_spec(workshop.spec, overrides, probe=False, options=Options(), observer=Watching())
    folder: Path = workshop.folder / "run"
    folder.mkdir()
    mark(folder, "token")
    (assignment,) = assignments(workload, plan, Start(), folder, 0.0, Options())
    given = pickle.dumps((assignment, "token"))
    done = subprocess.run([sys.executable, "-c", STAGE], input=given, capture_output=True, check=False, timeout=120)
    log = folder / "logs" / "stage-0.log"
    said = done.stdout.decode() + (log.read_text() if log.exists() else "")
    assert said.splitlines()[-1] == "9 []", done.stderr.decode()
