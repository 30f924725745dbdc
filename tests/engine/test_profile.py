"""Traces of chosen mini-batches where every stage is its own process, and what they leave alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from alray.orchestrate import Finished, Options, run_spec

from .conftest import Asked, Watching, Workshop
from .test_same_bits import same


@dataclass
class Profiled:
    """Runs the tiny spec with some mini-batches traced."""

    workshop: Workshop

    def run(self, *overrides: str, steps: tuple[range, ...], inline: bool, name: str) -> Finished:
        options = Options(inline=inline, run_dir=self.workshop.folder / name, profile=steps, pages=False)
        return run_spec(self.workshop.spec, list(overrides), options, Watching(), Asked())


@pytest.fixture
def profiled(workshop: Workshop) -> Profiled:
    return Profiled(workshop)


def ranges(run: Finished, stage: int) -> list[str]:
    """Names of the ranges of one stage's trace, in order of their beginning."""
    events: list[dict[str, Any]] = json.loads(
        (Path(run.summary.run_dir) / "profile" / f"stage-{stage}.json").read_text()
    )["traceEvents"]
    found = [event for event in events if event.get("cat") == "user_annotation"]
    return [event["name"] for event in sorted(found, key=lambda event: (event["ts"], -event["dur"]))]


@pytest.mark.parametrize(
    "schedule",
    ["streamed", *[pytest.param(name, marks=pytest.mark.full) for name in ("parallel_backward", "overlapped")]],
)
def test_inline_a_trace_holds_all_stages_and_the_bits_are_the_same(profiled, reference, schedule) -> None:
    choice = ("pipeline.partition=[1,2,1]", f"pipeline.schedule={schedule}")
    run = profiled.run(*choice, steps=(range(4, 7), range(9, 10)), inline=True, name="run")
    same(run, reference)
    named = ranges(run, 0)
    for stage in range(3):
        assert [name for name in named if name.startswith(f"{stage}U")] == [f"{stage}U{k}" for k in (3, 4, 5, 8)]
    assert len(list((Path(run.summary.run_dir) / "profile").iterdir())) == 1


def test_inline_a_trace_holds_all_replicas_and_ends(profiled) -> None:
    replicas = ("replicas={count: 2, synchronise: {average_every: 4 steps}}", "run.epochs=1")
    run = profiled.run(*replicas, steps=(range(2, 3), range(6, 7)), inline=True, name="run")
    assert [name for name in ranges(run, 0) if name.startswith("0U")] == ["0U1"] * 2 + ["0U5"] * 2
    trace = json.loads((Path(run.summary.run_dir) / "profile" / "stage-0.json").read_text())["traceEvents"]
    convolutions = [event for event in trace if event.get("name") == "aten::conv2d"]
    assert len(convolutions) == 4 * 2 * 2, "of four components in two mini-batches on two replicas, and no other"


@pytest.mark.full
def test_a_pipeline_of_backpropagation_names_every_micro_batch(profiled, processes) -> None:
    choice = ("method=backpropagation", "pipeline.schedule=1f1b", "pipeline.partition=[2,2]")
    cut = ("pipeline.micro_batches=2", "pipeline.micro_batch_norm=accept", "run.epochs=1")
    run = profiled.run(*choice, *cut, steps=(range(3, 4),), inline=False, name="run")
    assert [name for name in ranges(run, 1) if name[0] == "1"] == ["1F2", "1B2", "1F2.1", "1B2.1", "1U2"]
