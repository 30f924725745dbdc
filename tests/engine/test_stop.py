"""How soon a run ends that a callback stops: stage 0 is ahead of the last one by what the edges between them hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import alray

from .process_graph import ProcessGraph, in_processes

SLOW = """\
import time

from torch import nn


class Slow(nn.Linear):
    def forward(self, s):
        time.sleep(0.05)
        return super().forward(s)


def build(input, **fields):
    return Slow(input[0], input[0])
"""
COST = {"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}
IN_FLIGHT = 3


class Stops(alray.Callback):
    def on_step(self, record: Any) -> None:
        self.stop()


@pytest.mark.parametrize(
    ("partition", "nodes"),
    [([2, 1], ()), *(pytest.param(*each, marks=pytest.mark.full) for each in (([1, 1, 1], ()), ([2, 1], ("a", "b"))))],
)
def test_a_stop_comes_within_what_the_edges_hold(
    partition: list[int], nodes: tuple[str, ...], server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last stage is slow, so all edges before it are full."""
    monkeypatch.chdir(tmp_path)
    Path("slow.py").write_text(SLOW)
    spec = {
        "name": "slow",
        "data": {"source": "synthetic", "shape": [4], "classes": 3, "samples": 400, "batch_size": 4},
        "model": {"components": [{"block": "mlp", "widths": [4]}] * 2 + [{"block": "python:slow.build"}]},
        "method": "decoupled_greedy",
        "pipeline": {"stages": len(partition), "partition": partition, "in_flight": IN_FLIGHT, "costs": [COST] * 3},
        "run": {"epochs": 50, "checkpoint": {"every": "10 epochs"}, "evaluate_every": "10 epochs"},
    }
    completed = []
    ask = ProcessGraph.request_stop

    def request_stop(self: ProcessGraph) -> None:
        ask(self)
        completed.append(min(status.step for status in self.poll(0.0)))

    monkeypatch.setattr(ProcessGraph, "request_stop", request_stop)
    with in_processes(server, nodes):
        run = alray.run(spec, progress=False, callbacks=[Stops()])
    edges, more = len(partition) - 1, 1 if nodes else 0
    assert run.summary.status == "interrupted"
    assert 0 <= run.summary.steps - completed[0] <= edges * (IN_FLIGHT + 1 + more) + 2
