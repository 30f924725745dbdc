"""What is run while something goes wrong: a small network under every schedule, replicas, and studies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from alray.planning.schedules.table import SCHEDULES

STEPS, EVALUATE_EVERY = 40, 10
SPEC = f"""\
name: chaos
seed: 3
data: {{source: synthetic, shape: [8], classes: 4, samples: 200, batch_size: 16, validation_fraction: 0.2}}
model:
  components:
    - {{block: "python:paced.Paced", width: 12}}
    - {{block: "python:paced.Paced", width: 12}}
    - {{block: "python:paced.Paced", width: 10}}
    - {{block: "python:paced.Paced", width: 8}}
pipeline:
  stages: 2
  costs: [&cost {{forward_s: 2e-2, backward_s: 1e-3, update_s: 1e-3}}, *cost, *cost, *cost]
run: {{steps: {STEPS}, evaluate_every: {EVALUATE_EVERY} steps, checkpoint: {{every: 7 steps}}, deadline_s: 8}}
"""
STUDY = """\
study: chaos
base: spec.yaml
axes: {seed: [3, 4]}
max_concurrent: 1
"""
PACED = '''\
"""A block that takes its time, so that something can happen in the middle of a run, and that draws random numbers."""

import time

import torch
from torch import nn


class Paced(nn.Module):
    def __init__(self, input, width, sleep_s=0.02):
        super().__init__()
        self.linear = nn.Linear(input.elements, width)
        self.dropout = nn.Dropout(0.1)
        self.sleep_s = sleep_s

    def forward(self, s, mask=None):
        if s.device.type != "meta":
            time.sleep(self.sleep_s)
        return torch.tanh(self.linear(self.dropout(s)))
'''


@dataclass(frozen=True)
class Scenario:
    """One way to train the network of `SPEC`. overrides: of its spec, or of the base of its study."""

    name: str
    overrides: tuple[str, ...] = ()
    inline: bool = False
    study: bool = False
    like: str | None = None
    """The scenario that must end in the same weights; None: this one, undisturbed."""

    @property
    def expected(self) -> str:
        return self.like or self.name

    @property
    def trials(self) -> int:
        return 2 if self.study else 1

    @property
    def total_steps(self) -> int:
        return STEPS * self.trials

    def first(self) -> list[str]:
        """The command that begins it."""
        if self.study:
            return ["study", "study.yaml", *self.overrides, "--output", "disk/run", "--json"]
        inline = ["--inline"] if self.inline else []
        return ["run", "spec.yaml", *self.overrides, *inline, "--output", "disk/run", "--json"]

    def again(self) -> list[str]:
        """The command that goes on with it."""
        if self.study:
            return ["study", "--resume", "disk/run", "--json"]
        return ["resume", "disk/run", *(["--inline"] if self.inline else []), "--json"]


def write_spec(folder: Path) -> None:
    """Write the spec, the study and the block into a folder."""
    for name, text in (("spec.yaml", SPEC), ("study.yaml", STUDY), ("paced.py", PACED)):
        (folder / name).write_text(text, encoding="utf-8")


BP = "method=backpropagation"
LOADER = "data.workers=1"
TWO_REPLICAS = ("pipeline.stages=1", "replicas.count=2")
UNDISTURBED = "associated_learning"
"""Associated Learning trains the same weights under every schedule, so this is what all of them must equal."""

_LOCAL = [name for name, schedule in SCHEDULES.items() if schedule.local_losses]
_PIPELINES = [name for name, schedule in SCHEDULES.items() if schedule.is_pipeline]


def _pipeline(name: str) -> tuple[str, ...]:
    """A pipeline with few micro-batches, for the blocks sleep for each of them."""
    schedule = SCHEDULES[name]
    possible = [count for count in (2, 4) if schedule.micro_batches_fault(2, count) is None]
    cut = (f"pipeline.micro_batches={possible[0]}",) if schedule.cuts_mini_batches else ()
    return BP, f"pipeline.schedule={name}", *cut


def _both(name: str, *overrides: str, like: str | None = None) -> list[Scenario]:
    """On Ray, and in one process."""
    return [
        Scenario(name, overrides, like=like or f"{name}, inline"),
        Scenario(f"{name}, inline", overrides, inline=True, like=like),
    ]


RUNS = [
    *(each for name in _LOCAL for each in _both(name, f"pipeline.schedule={name}", LOADER, like=UNDISTURBED)),
    *_both("single", BP, "pipeline.stages=1", LOADER),
    *(each for name in _PIPELINES for each in _both(name, *_pipeline(name))),
    *_both("recomputation", *_pipeline("1f1b"), "pipeline.activation_checkpointing=true", like="1f1b, inline"),
    *_both("replicas", *TWO_REPLICAS, LOADER),
    *_both("averaged weights", *TWO_REPLICAS, "replicas.synchronise={average_every: 4 steps}"),
    Scenario("ray_train", (BP, *TWO_REPLICAS, "replicas.engine=ray_train")),
]
STUDIES = [
    Scenario("study", ("set={pipeline.stages: 1}",), study=True),
    Scenario("study of two stages", (), study=True, like="study"),
]
SCENARIOS = {each.name: each for each in (Scenario(UNDISTURBED, ("pipeline.stages=1",), inline=True), *RUNS, *STUDIES)}
