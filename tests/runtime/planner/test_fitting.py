"""What fits on given devices, searched over all layouts."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import yaml
from torch import nn

import alray
from alray.planning.schedules.table import schedules_on

SAMPLES = 6
DRAWN = random.Random(4)
SPEC = {
    "name": "random",
    "data": {"source": "synthetic", "shape": [4], "classes": 2, "samples": 60, "batch_size": SAMPLES},
    "model": {"components": [{"block": "linear", "width": 3, "repeat": 8}]},
    "method": "backpropagation",
    "optimizer": {"kind": "sgd", "lr": 0.1},
    "pipeline": {
        "stages": 3,
        "costs": [
            {"forward_s": DRAWN.uniform(0.001, 0.02), "backward_s": DRAWN.uniform(0.001, 0.04), "update_s": 0.001}
            for _ in range(8)
        ],
    },
    "run": {"epochs": 1},
}
"""Before any cut is searched, the fastest of its layouts is not the first one."""


def test_the_best_layout_is_the_best_of_those_that_are_searched_alone(counted_once: None) -> None:
    def best_s(**layout: Any) -> float:
        given = {"pipeline.stages": 3} | {f"pipeline.{key}": value for key, value in layout.items()}
        best = alray.ways(SPEC, given, devices="3x1GB", progress=False).best
        assert best is not None
        return best.predicted_step_time_s

    alone = [
        best_s(schedule=schedule.name, micro_batches=number)
        for schedule in schedules_on(3, local_losses=False)
        if schedule.cuts_mini_batches and not schedule.gradient_delay
        for number in schedule.possible_micro_batches(3, SAMPLES)
    ]
    assert len(alone) > 8 and best_s() == pytest.approx(min(alone))


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x + self.linear(x * scale)


class _Scaled(nn.Module):
    """Every layer needs a second tensor, which has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.ones_like(x)
        for layer in self.layers:
            x = layer(x, scale)
        return x[:, :2]


def test_a_model_is_cut_for_as_many_stages_as_there_are_devices(one_thread: None) -> None:
    spec = {**SPEC, "model": {"from": _Scaled}, "pipeline": {}, "resources": {}}
    found = alray.ways(spec, devices="3x1GB", progress=False)
    assert {row.stages for row in found.rows} == {1, 2, 3}
    row = next(each for each in found.rows if each.stages == 3 and each.micro_batches == 3)
    overrides = found.overrides(row)
    plan = alray.plan(
        spec,
        {key: yaml.safe_load(value) for key, _, value in (each.partition("=") for each in overrides)},
        progress=False,
    )
    assert plan.partition == row.partition

    crossed = alray.map_ways(spec, devices=[1, 3], link="host", micro_batches=[3], progress=False)
    assert 3 in set(crossed.table()["stages"])
