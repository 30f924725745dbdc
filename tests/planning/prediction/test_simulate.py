"""Simulated timelines: the drawings of tests/golden/timelines, the laws of the schedules, and deadlocks."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alray.core.errors import PlanError
from alray.planning.prediction.program import Program
from alray.planning.prediction.simulate import simulate, unhindered_steps
from alray.planning.prediction.timeline import Timeline
from alray.planning.schedules.actions import Action, ActionKind, parse
from alray.planning.schedules.durations import Durations
from alray.planning.schedules.evaluation import evaluation_actions
from alray.planning.schedules.table import SCHEDULES

from ...programs import parse_program

GOLDEN = Path(__file__).parents[2] / "golden" / "timelines"
FILES = sorted(GOLDEN.glob("*.txt"))
LOCAL = [name for name, schedule in SCHEDULES.items() if schedule.local_losses]


def read_drawing(path: Path) -> tuple[Timeline, list[str]]:
    """The simulation of what a golden file's header says, and its drawing."""
    head, _, drawing = path.read_text().partition("---\n")
    keys = dict(line.split(": ") for line in head.splitlines() if not line.startswith("#"))
    schedule, stages, batches = keys["program"].split()
    size = int(stages)
    micro_batches, virtual_stages = int(keys.get("micro_batches", "1")), int(keys.get("virtual_stages", "1"))
    parts = size * virtual_stages

    def values(key: str, count: int) -> list[float]:
        given_values = [float(word) for word in keys.get(key, "0").split()]
        return given_values * count if len(given_values) == 1 else given_values

    kinds: tuple[ActionKind, ...] = ("F", "B", "U", "E", "D", "L", "I", "G")
    durations = Durations(
        {kind: values(kind, parts) for kind in kinds},
        up_s=values("up", parts - 1),
        down_s=values("down", parts - 1),
        latency_s=float(keys.get("latency", "0")),
        labels_up_s=values("labels", parts - 1) if "labels" in keys else (),
    )
    made = (
        Program.of(evaluation_actions(stage, size, int(batches)) for stage in range(size))
        if schedule == "evaluation"
        else Program.of_schedule(
            SCHEDULES[schedule], size, int(batches), micro_batches=micro_batches, virtual_stages=virtual_stages
        )
    )
    return simulate(made, durations, in_flight=int(keys.get("in_flight", "4"))), drawing.splitlines()


def draw(timeline: Timeline) -> list[str]:
    rows = [["."] * round(timeline.duration_s) for _ in range(timeline.program.stages)]
    for bar in timeline.bars():
        assert bar.start_s == round(bar.start_s) and bar.end_s == round(bar.end_s)
        for second in range(round(bar.start_s), round(bar.end_s)):
            assert rows[bar.stage][second] == ".", f"{bar} overlaps another action"
            rows[bar.stage][second] = parse(bar.action).kind
    return ["".join(row) for row in rows]


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_golden_timelines(path: Path) -> None:
    timeline, drawing = read_drawing(path)
    assert draw(timeline) == drawing


def test_every_schedule_has_a_golden_timeline() -> None:
    assert {*SCHEDULES, "evaluation"} <= {path.stem for path in FILES}


stage_times = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 9)), min_size=2, max_size=6)


def durations_of(times: list[tuple[int, int, int]]) -> Durations:
    forward, backward, update = zip(*times, strict=True)
    return Durations({"F": forward, "B": backward, "U": update})


@given(stage_times, st.sampled_from(LOCAL), st.integers(1, 4))
@settings(max_examples=60)
def test_without_messages_the_steady_step_is_the_bound(
    times: list[tuple[int, int, int]], schedule: str, in_flight: int
) -> None:
    timeline = simulate(
        Program.of_schedule(SCHEDULES[schedule], len(times), 24), durations_of(times), in_flight=in_flight
    )
    bound = unhindered_steps(Program.of_schedule(SCHEDULES[schedule], len(times), 24), durations_of(times))
    assert timeline.step_time_s == pytest.approx(bound[0])


@given(stage_times)
@settings(max_examples=25)
def test_laws_in_their_own_words(times: list[tuple[int, int, int]]) -> None:
    def step(schedule: str) -> float:
        return simulate(
            Program.of_schedule(SCHEDULES[schedule], len(times), 24), durations_of(times), in_flight=4
        ).step_time_s

    forward = sum(f for f, _, _ in times)
    assert step("streamed") == max(sum(own) for own in times)
    assert step("sequential") == sum(sum(own) for own in times)
    assert step("parallel_backward") == forward + max(b + u for _, b, u in times)
    # Equal to it where the last stage's backward is the slowest, under it where it is not.
    overlapped = forward + max(b + u for _, b, u in times)
    if max(b + u for _, b, u in times) == sum(times[-1][1:]):
        assert step("overlapped") == overlapped
    else:
        assert max(sum(own) for own in times) <= step("overlapped") <= overlapped


@given(stage_times, st.integers(1, 3))
@settings(max_examples=25)
def test_at_most_in_flight_messages_wait_on_an_edge(times: list[tuple[int, int, int]], in_flight: int) -> None:
    timeline = simulate(
        Program.of_schedule(SCHEDULES["streamed"], len(times), 12), durations_of(times), in_flight=in_flight
    )
    at = {bar.action: bar for bar in timeline.bars()}
    for stage in range(len(times) - 1):
        for batch in range(12):
            sent = at[f"{stage}S{batch}"].end_s
            assert at[f"{stage + 1}R{batch}"].start_s >= sent
            waiting = sum(
                at[f"{stage}S{other}"].end_s <= sent < at[f"{stage + 1}R{other}"].end_s for other in range(12)
            )
            assert waiting <= in_flight


@pytest.mark.parametrize("schedule", LOCAL)
def test_each_stage_does_its_actions_in_order(schedule: str) -> None:
    durations = Durations({"F": [1, 3, 2], "B": [2, 1, 4], "U": [1, 1, 2]}, up_s=[0.5, 1.0], latency_s=0.25)
    timeline = simulate(Program.of_schedule(SCHEDULES[schedule], 3, 9), durations, in_flight=1)
    for starts, ends in zip(timeline.starts_s, timeline.ends_s, strict=True):
        assert np.all(starts[1:] >= ends[:-1] - 1e-9)
        assert np.all(ends >= starts)


def test_completed_steps() -> None:
    durations = Durations({"F": [1] * 3, "B": [2] * 3, "U": [1] * 3})
    timeline = simulate(Program.of_schedule(SCHEDULES["overlapped"], 3, 10), durations, in_flight=4)
    assert timeline.completed_s.tolist() == [6.0 * (step + 1) for step in range(10)]


@pytest.mark.parametrize("stages", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("batches", [1, 2, 7, 20])
def test_evaluation_never_deadlocks_and_is_as_fast_as_its_slowest_stage(stages: int, batches: int) -> None:
    durations = Durations({"E": [2.0] * stages, "D": [1.0] * stages})
    timeline = simulate(
        Program.of(evaluation_actions(stage, stages, batches) for stage in range(stages)), durations, in_flight=1
    )
    assert timeline.duration_s >= 3.0 * batches
    assert timeline.duration_s <= 3.0 * (batches + 2 * stages)


def deadlock_message(text: str, in_flight: int = 4) -> str:
    lists = parse_program(text)
    size = len(lists)
    durations = Durations({"F": [1] * size, "B": [1] * size, "U": [1] * size})
    with pytest.raises(PlanError) as caught:
        simulate(Program.of(lists), durations, in_flight=in_flight)
    return caught.value.problems[0].message


def circle_of(text: str, in_flight: int = 4) -> list[str]:
    """The actions that wait for each other, in the order in which the error names them."""
    message = deadlock_message(text, in_flight=in_flight)
    assert message.startswith("deadlock: ")
    return re.findall(r"`(\w+)`", message)


def test_two_stages_that_wait_for_each_other() -> None:
    assert circle_of("0F0 0R0v 0S0\n1R0 1F0 1S0v\n") == ["0R0v", "1R0"]


def test_a_barrier_before_the_message_behind_it() -> None:
    assert circle_of("0F0 0W0 0S0\n1R0 1F0 1W0\n") == ["0W0", "1R0"]


def test_an_edge_without_room() -> None:
    text = "0F0 0S0 0F1 0S1 0W0\n1W0 1R0 1F0 1R1 1F1\n"
    assert circle_of(text, in_flight=1) == ["0S1", "1W0"]
    durations = Durations({"F": [1] * 2, "B": [1] * 2, "U": [1] * 2})
    simulate(Program.of(parse_program(text)), durations, in_flight=2)


def test_a_stage_behind_a_circle_is_told_up_to_the_circle() -> None:
    text = "0F0 0R0v\n1R0v 1S0v 1S0\n2R0 2S0v\n"
    assert circle_of(text) == ["0R0v", "1R0v", "2R0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0 0S0\n1R0 1F0 1R3\n", "the message of `1R3` has 0 sends and 1 receive"),
        ("0S0 0S1\n1R0\n", "the message of `1R1` has 1 send and 0 receives"),
        ("0S0 0S0\n1R0\n", "the message of `1R0` has 2 sends and 1 receive"),
        ("0S0v\n", "the message of `-1R0v` has 1 send and 0 receives"),
        ("0R0\n1F0\n", "the message of `0R0` has 0 sends and 1 receive"),
        ("0F0 0W0\n1F0\n", "stages 0 and 1 have different barriers"),
    ],
)
def test_messages_and_barriers_that_do_not_match(text: str, message: str) -> None:
    assert deadlock_message(text) == message


def test_a_receive_takes_the_message_that_it_names() -> None:
    timeline = simulate(
        Program.of(parse_program("0F0 0S0 0F1 0S1\n1R1 1F1 1R0 1F0\n")), Durations({"F": [1.0] * 2}), in_flight=4
    )
    assert {bar.action: bar.start_s for bar in timeline.bars() if bar.stage == 1} == {
        "1R1": 2.0,
        "1F1": 2.0,
        "1R0": 3.0,
        "1F0": 3.0,
    }


def simulate_naively(program: Program, durations: Durations, in_flight: int) -> dict[str, tuple[float, float]]:
    """Start and end of each action, by going round the stages until nothing is left to do."""
    lists = [list(program.actions(stage)) for stage in range(program.stages)]
    clock = [0.0] * program.stages
    done: dict[str, tuple[float, float]] = {}
    seconds = durations.computing

    def message_s(part: int, edge: int) -> float:
        return (durations.labels_up_s if part else durations.up_s)[edge] / 2

    while any(lists):
        heads = [own[0] for own in lists if own]
        if all(head.kind == "W" for head in heads):
            opens = max(clock) + durations.latency_s
            for own in lists:
                done[str(own.pop(0))] = (opens, opens)
            clock = [opens] * program.stages
        for head in heads:
            earliest, spent = clock[head.stage], 0.0
            if head.kind == "W":
                continue
            if head.kind == "R":
                if (sent := done.get(str(Action(head.peer, "S", head.batch, head.number)))) is None:
                    continue
                earliest, spent = max(earliest, sent[1] + durations.latency_s), message_s(head.number, head.peer)
            elif head.kind == "S":
                taken = (0.0, 0.0)
                if (
                    head.number == 0
                    and head.batch >= in_flight
                    and (taken := done.get(f"{head.peer}R{head.batch - in_flight}", (0.0, -1.0))) == (0.0, -1.0)
                ):
                    continue
                earliest, spent = max(earliest, taken[1]), message_s(head.number, head.stage)
            else:
                spent = seconds[head.kind][head.stage]
            done[str(head)] = (earliest, earliest + spent)
            clock[head.stage] = earliest + spent
            lists[head.stage].pop(0)
    return done


@given(stage_times, st.sampled_from(LOCAL), st.integers(1, 3), st.integers(0, 3), st.data())
@settings(max_examples=40)
def test_the_simulation_agrees_with_a_naive_one(
    times: list[tuple[int, int, int]], schedule: str, in_flight: int, latency: int, data: st.DataObject
) -> None:
    def drawn(size: int) -> list[int]:
        return data.draw(st.lists(st.integers(0, 6), min_size=size, max_size=size))

    edges = len(times) - 1
    trained = durations_of(times)
    durations = replace(
        trained,
        computing={**trained.computing, "L": drawn(len(times))},
        up_s=drawn(edges),
        labels_up_s=drawn(edges),
        latency_s=latency,
    )
    program = Program.of_schedule(SCHEDULES[schedule], len(times), 8)
    found = {bar.action: (bar.start_s, bar.end_s) for bar in simulate(program, durations, in_flight=in_flight).bars()}
    assert found == simulate_naively(program, durations, in_flight)


@given(
    schedule=st.sampled_from(LOCAL),
    stages=st.integers(2, 4),
    virtual=st.integers(1, 4),
    in_flight=st.integers(1, 2),
    data=st.data(),
)
@settings(max_examples=30)
def test_local_losses_in_virtual_stages_never_wait_for_each_other(
    schedule: str, stages: int, virtual: int, in_flight: int, data: st.DataObject
) -> None:
    """Whatever actions and messages take, and however little an edge holds; and no step is below the bound."""
    number = stages * virtual
    seconds = st.floats(0.0, 1.0)
    each = st.lists(seconds, min_size=number, max_size=number)
    messages = st.lists(seconds, min_size=number - 1, max_size=number - 1)
    kinds: tuple[ActionKind, ...] = ("F", "B", "U", "L")
    durations = Durations(
        {kind: data.draw(each) for kind in kinds},
        up_s=data.draw(messages),
        labels_up_s=data.draw(messages),
    )
    program = Program.of_schedule(SCHEDULES[schedule], stages, 9, virtual_stages=virtual)
    timeline = simulate(program, durations, in_flight=in_flight)
    assert timeline.step_time_s >= unhindered_steps(program, durations)[0] - 1e-9
