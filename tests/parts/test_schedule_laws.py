"""The laws of schedules. A schedule enters by its file in `alray/parts/schedules`: nothing is to be added here."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from alray.orchestrate import Finished
from alray.planning.schedules.actions import Action
from alray.planning.schedules.edge_slots import most_in_use
from alray.planning.schedules.placement import held
from alray.planning.schedules.schedule import Schedule, run_of
from alray.planning.schedules.table import SCHEDULES

from ..engine.conftest import Workshop
from ..engine.test_replicas import distance

pytestmark = pytest.mark.long

by_name = pytest.mark.parametrize("schedule", [pytest.param(each, id=name) for name, each in SCHEDULES.items()])
BATCHES = 3


def layouts(schedule: Schedule) -> Iterator[tuple[int, int, int]]:
    """Stages, micro-batches and virtual stages that it can have."""
    for stages in (1,) if schedule.one_stage else (1, 2, 3, 4):
        for parts in (1, 2, 3, 4, 6, 8):
            for virtual in (1, 2, 3):
                if schedule.micro_batches_fault(stages, parts) is schedule.virtual_stages_fault(virtual) is None:
                    yield stages, parts, virtual


@by_name
def test_every_stage_computes_each_micro_batch_once(schedule: Schedule) -> None:
    """Forward, then backward, whole or in two parts; one update of a mini-batch after its last one. What is received
    has been sent."""
    for stages, parts, virtual in layouts(schedule):
        lists = [run_of(schedule, stage, stages, BATCHES, parts, virtual) for stage in range(stages)]
        told, sent, received = Counter[tuple[str, int, int, int]](), Counter[Action](), Counter[Action]()
        for stage, own in enumerate(lists):
            places = {action: place for place, action in enumerate(own)}
            assert len(places) == len(own), "no action twice"
            for action in own:
                assert action.stage in held(schedule.place, stage, stages, virtual)
                told[action.kind, action.batch, action.stage, action.number] += 1
                if action.kind == "S":
                    sent[Action(action.peer, "R", action.batch, action.number, action.down)] += 1
                if action.kind == "R":
                    received[action] += 1
                if action.kind in "BI":
                    forward = Action(action.stage, "F", action.batch, action.number)
                    assert places[forward] < places[action]
                    assert places[action] < places[Action(action.stage, "U", action.batch)]
                if action.kind == "G":
                    whole = Action(action.stage, "I", action.batch, action.number)
                    assert places[whole] < places[action] < places[Action(action.stage, "U", action.batch)]
        assert sent == received
        for batch in range(BATCHES):
            for own in range(stages * virtual):
                assert told["U", batch, own, 0] == 1
                for part in range(parts):
                    assert told["F", batch, own, part] == 1
                    backward, halves = told["B", batch, own, part], told["I", batch, own, part]
                    assert (backward + halves, halves) == (1, told["G", batch, own, part])
                    assert told["L", batch, own, part] == schedule.local_losses


@by_name
@pytest.mark.parametrize("seed", range(3))
def test_no_order_of_events_is_a_deadlock_or_needs_more_room(schedule: Schedule, seed: int) -> None:
    """Stages that do their lists in any order of time all come to the end, and no edge holds more than is planned."""
    chosen = random.Random(seed)
    for stages, parts, virtual in chosen.sample(found := list(layouts(schedule)), min(6, len(found))):
        lists = [run_of(schedule, stage, stages, BATCHES, parts, virtual) for stage in range(stages)]
        last = [_last_uses(own) for own in lists]
        positions, arrived, in_use = [0] * stages, set[Action](), Counter[tuple[int, int, bool]]()

        def next_of(stage: int, lists: list[tuple[Action, ...]] = lists, at: list[int] = positions) -> Action | None:
            return lists[stage][at[stage]] if at[stage] < len(lists[stage]) else None

        while any(next_of(stage) is not None for stage in range(stages)):
            waiting = {stage: next_of(stage) for stage in range(stages)}
            if all(action is not None and action.kind == "W" for action in waiting.values()):
                positions = [position + 1 for position in positions]
                next_of.__defaults__ = (lists, positions)
                continue
            able = [
                stage
                for stage, action in waiting.items()
                if action is not None and action.kind != "W" and (action.kind != "R" or action in arrived)
            ]
            assert able, f"a deadlock of {stages} stages, {parts} micro-batches, {virtual} virtual stages"
            stage = chosen.choice(able)
            action = lists[stage][positions[stage]]
            if action.kind == "S":
                arrived.add(Action(action.peer, "R", action.batch, action.number, action.down))
                edge = (stage, schedule.place(action.peer, stages), action.down)
                in_use[edge] += 1
                if schedule.is_pipeline:
                    room = most_in_use(schedule.name, *edge[:2], stages, parts, virtual, down=action.down)
                    assert in_use[edge] <= room
            for peer, down in last[stage].get(positions[stage], ()):
                in_use[schedule.place(peer, stages), stage, down] -= 1
            positions[stage] += 1


def _last_uses(own: tuple[Action, ...]) -> dict[int, list[tuple[int, bool]]]:
    """For each place of a list, the virtual stages whose messages are no longer needed, and whether they came down."""
    ends: dict[tuple[int, int, int], int] = {}
    found: dict[int, list[tuple[int, bool]]] = {}
    received = set()
    for place, action in enumerate(own):
        if action.kind == "R" and action.down:
            found.setdefault(place, []).append((action.stage + 1, True))
        if action.kind == "R" and not action.down:
            received.add((action.batch, action.stage, action.number))
        if action.kind in "RFBIGS":
            ends[action.batch, action.stage, action.number] = place
    for key, place in ends.items():
        if key in received:
            found.setdefault(place, []).append((key[1] - 1, False))
    return found


SPEC = """
name: schedules
seed: 3
data: {source: synthetic, shape: [9], classes: 4, samples: 80, batch_size: 16, validation_fraction: 0}
model: {components: [{block: linear, width: 8, activation: tanh, repeat: 4}]}
optimizer: {kind: sgd, lr: 0.1, momentum: 0.9}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost, *cost]}
run: {steps: 6, precision: float64, evaluate_every: null, train: never, checkpoint: null}
"""


@pytest.fixture(scope="module")
def run_by(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Finished]:
    """`run_by(schedule, stages)`, once for each."""
    folder = tmp_path_factory.mktemp("schedules")

    @cache
    def run(name: str, stages: int) -> Finished:
        schedule = SCHEDULES[name]
        keys = ["method=" + ("decoupled_greedy" if schedule.local_losses else "backpropagation")]
        keys += [f"pipeline.schedule={name}", f"pipeline.stages={stages}"]
        if schedule.cuts_mini_batches:
            keys.append("pipeline.micro_batches=4")
        return Workshop(folder, SPEC).run(*keys, name=f"{name}_{stages}")

    return run


@by_name
def test_two_stages_end_in_what_one_device_comes_to(
    run_by: Callable[..., Finished], counted_once: None, one_thread: None, schedule: Schedule
) -> None:
    """In the same bits where micro-batches are added up in order; with late gradients, what one stage with late
    gradients comes to."""
    run = run_by(schedule.name, 1 if schedule.one_stage else 2)
    assert run.summary.schedule == schedule.name
    alone = run_by(schedule.name, 1)
    if schedule.in_order:
        assert run.summary.weights_sha256 == alone.summary.weights_sha256
    whole = run_by("streamed" if schedule.local_losses else "single", 1)
    assert (distance(run, whole) <= 1e-12) == (schedule.gradient_delay == 0)
    assert distance(run, alone) <= 1e-12
