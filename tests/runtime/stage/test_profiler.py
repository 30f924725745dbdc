"""Traces of chosen mini-batches: what is named in them, and that nothing stays behind."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from alray.models.component import LocalComponent
from alray.runtime.stage.assemble import work_of
from alray.runtime.stage.clock import Clock
from alray.runtime.stage.ports import Ports
from alray.runtime.stage.profiler import Profiler
from alray.runtime.stage.stage import MiniBatch, Stage

from ...mini_batches import forward
from ...programs import parse_program

CPU = torch.device("cpu")
DAY_US = 86_400e6


@pytest.fixture
def clock() -> Clock:
    return Clock(started_wall_s=time.time(), start_step=0)


@pytest.fixture
def make_stages(make_network: Callable[..., Any]) -> Callable[..., list[Stage]]:
    """Stages of one component each, or one of both."""

    def make(*overrides: str, together: bool = False) -> list[Stage]:
        network = make_network(*overrides)
        components = [network.component(index, CPU) for index in range(2)]
        actions = [each for each in ACTIONS if each.kind != "L" or isinstance(components[0], LocalComponent)]
        cut = [components] if together else [[component] for component in components]
        cuts = None if isinstance(components[0], LocalComponent) else 1
        return [Stage(work_of(part), actions, micro_batches=cuts) for part in cut]

    return make


ACTIONS = parse_program("0F0 0L0 0B0 0U0")[0]


def train(stage: Stage, clock: Clock, step: int, incoming: dict[str, torch.Tensor]) -> None:
    batch = MiniBatch(step, lr=0.01, samples=8, incoming=incoming)
    for _ in stage.mini_batch(batch, Ports(), clock):
        pass
    clock.step_done()


def samples() -> dict[str, torch.Tensor]:
    return {"s": torch.linspace(-1, 1, 8 * 128).reshape(8, 2, 8, 8), "labels": torch.arange(8) % 4}


def named(trace: Path) -> Iterator[tuple[str, int, float]]:
    """Ranges in order of their beginning: name, number of ranges around it, start in microseconds."""
    events = json.loads(trace.read_text())["traceEvents"]
    ends: list[float] = []
    for event in sorted(
        (event for event in events if event.get("cat") == "user_annotation" and "#" not in event["name"]),
        key=lambda event: (event["ts"], -event["dur"]),
    ):
        ends = [end for end in ends if end > event["ts"]]
        yield event["name"], len(ends), event["ts"]
        ends.append(event["ts"] + event["dur"])


@pytest.mark.parametrize(("method", "kinds"), [("associated_learning", "FLBU"), ("backpropagation", "FBU")])
def test_actions_of_the_chosen_mini_batch_are_named(
    make_stages: Callable[..., Any], clock: Clock, tmp_path: Path, method: str, kinds: str
) -> None:
    (stage,) = make_stages(f"method={method}", together=True)
    with closing(Profiler([range(2, 3)], tmp_path / "t.json", stages=1, device=CPU)) as profiler:
        for step in (1, 2, 3):
            with profiler.mini_batch(step, clock):
                train(stage, clock, step, samples())
    assert [(name, depth) for name, depth, _ in named(tmp_path / "t.json")] == [(f"0{kind}1", 0) for kind in kinds]


@pytest.mark.few
@pytest.mark.parametrize("method", ["associated_learning", "backpropagation"])
def test_the_bits_are_the_same(make_stages: Callable[..., Any], clock: Clock, tmp_path: Path, method: str) -> None:
    weights = []
    for profiled in (False, True):
        (stage,) = make_stages(f"method={method}", together=True)
        ranges = [range(1, 3)] if profiled else []
        with closing(Profiler(ranges, tmp_path / "t.json", stages=1, device=CPU)) as profiler:
            for step in (1, 2, 3):
                with profiler.mini_batch(step, clock):
                    train(stage, clock, step, samples())
        assert (tmp_path / "t.json").exists() == profiled
        weights.append([value for component in stage.components for value in component.weights().values()])
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))


def test_a_failing_mini_batch_leaves_what_was_recorded(
    make_stages: Callable[..., Any], clock: Clock, tmp_path: Path
) -> None:
    (stage,) = make_stages(together=True)
    with (
        pytest.raises(RuntimeError),
        closing(Profiler([range(1, 9)], tmp_path / "t.json", stages=1, device=CPU)) as profiler,
        profiler.mini_batch(1, clock),
    ):
        train(stage, clock, 1, samples())
        train(stage, clock, 2, {"s": torch.zeros(8, 3), "labels": torch.zeros(8)})
    assert "0U0" in {name for name, *_ in named(tmp_path / "t.json")}
    assert not clock.names_ranges


def test_stages_of_one_process_are_recorded_until_the_last_has_ended(
    make_stages: Callable[..., Any], clock: Clock, tmp_path: Path
) -> None:
    """The first stage is through both of its ranges before the second one begins them."""
    stages = make_stages()
    clocks = [clock, Clock(started_wall_s=time.time(), start_step=0)]
    profiler = Profiler([range(1, 2), range(3, 4)], tmp_path / "t.json", stages=2, device=CPU)
    passed = forward(stages[0].work, samples(), 1)
    for step in (1, 2, 3):
        with profiler.mini_batch(step, clocks[0]):
            train(stages[0], clocks[0], step, samples())
    assert not (tmp_path / "t.json").exists()
    for step in (1, 2, 3):
        with profiler.mini_batch(step, clocks[1]):
            train(stages[1], clocks[1], step, passed)
    forwards = [name for name, *_ in named(tmp_path / "t.json") if "F" in name]
    assert forwards == ["0F0", "0F2"] * 2


def test_a_trace_is_added_to_the_one_that_is_there(
    make_stages: Callable[..., Any], clock: Clock, tmp_path: Path
) -> None:
    (stage,) = make_stages(together=True)
    trace = tmp_path / "profile" / "t.json"
    for step in (1, 2):
        with (
            closing(Profiler([range(step, step + 1)], trace, stages=1, device=CPU)) as profiler,
            profiler.mini_batch(step, clock),
        ):
            train(stage, clock, step, samples())
        if step == 1:  # as if it had been recorded when the base in use was ten days later
            value = json.loads(trace.read_text())
            value["baseTimeNanoseconds"] += round(10 * DAY_US * 1e3)
            for event in value["traceEvents"]:
                event["ts"] = event.get("ts", 0.0) - 10 * DAY_US
            trace.write_text(json.dumps(value))
    actions = {name: start for name, _, start in named(trace) if name[0] == "0"}
    assert list(actions) == ["0F0", "0L0", "0B0", "0U0", "0F1", "0L1", "0B1", "0U1"]
    assert 0 < actions["0F1"] - actions["0U0"] < DAY_US
    assert [path.name for path in trace.parent.iterdir()] == ["t.json"]
