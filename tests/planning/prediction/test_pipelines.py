"""The laws of the pipelines of backpropagation: step, bubble, bound, and what they demand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alray.core.errors import PlanError
from alray.planning.prediction.program import Program
from alray.planning.prediction.simulate import simulate, unhindered_steps
from alray.planning.prediction.timeline import Timeline
from alray.planning.schedules.actions import parse
from alray.planning.schedules.durations import Durations
from alray.planning.schedules.placement import held
from alray.planning.schedules.recomputation import schedule_with
from alray.planning.schedules.schedule import counts_of, run_of
from alray.planning.schedules.table import SCHEDULES
from benchmarks.recomputation import after_the_gradient

from ...programs import computations, parse_program, print_program

SHAPES = [
    ("naive", 1),
    ("gpipe", 1),
    ("1f1b", 1),
    ("2bw", 1),
    ("interleaved_1f1b", 2),
    ("zero_bubble", 1),
    ("zero_bubble", 2),
    ("zb_v", 2),
    ("dualpipe_v", 2),
]

sizes = st.tuples(st.integers(1, 5), st.integers(1, 4))  # stages, and micro-batches a stage
seconds = st.integers(1, 9)


def run(
    schedule: str, stages: int, micro_batches: int, durations: Durations, *, virtual_stages: int = 1, batches: int = 4
) -> Timeline:
    made = Program.of_schedule(
        SCHEDULES[schedule], stages, batches, micro_batches=micro_batches, virtual_stages=virtual_stages
    )
    return simulate(made, durations, in_flight=micro_batches)


def even(parts: int, forward: float, backward: float) -> Durations:
    """Every part alike, a backward split in halves, no update."""
    half = [backward / 2] * parts
    return Durations({"F": [forward] * parts, "B": [backward] * parts, "I": half, "G": half})


@given(sizes, seconds, seconds)
@settings(max_examples=30)
def test_gradients_are_clipped_together_before_any_update(size: tuple[int, int], forward: int, backward: int) -> None:
    stages, micro_batches = size[0], size[0] * size[1] * 2
    for schedule, virtual in SHAPES:
        parts = 1 if schedule == "naive" else micro_batches
        together = schedule_with(schedule, recomputes=False, clips_together=True)
        program = Program.of_schedule(together, stages, 4, micro_batches=parts, virtual_stages=virtual)
        halves = even(stages * virtual, forward, backward)
        durations = replace(halves, computing={**halves.computing, "U": [1.0] * stages * virtual})
        bars = [(parse(bar.action), bar) for bar in simulate(program, durations, in_flight=parts).bars()]
        for batch in range(4):
            own = [(action.kind, bar) for action, bar in bars if action.batch == batch]
            last_s = max(bar.end_s for kind, bar in own if kind in ("B", "I", "G"))
            assert all(bar.start_s >= last_s - 1e-9 for kind, bar in own if kind == "U")


@given(sizes, seconds, seconds)
@settings(max_examples=30)
def test_balanced_pipelines(size: tuple[int, int], forward: int, backward: int) -> None:
    stages, micro_batches = size[0], size[0] * size[1]
    both = forward + backward
    for schedule in ("gpipe", "1f1b"):
        timeline = run(schedule, stages, micro_batches, even(stages, forward, backward))
        assert timeline.step_time_s == pytest.approx((micro_batches + stages - 1) * both)
    naive = run("naive", stages, 1, even(stages, forward, backward))
    assert naive.step_time_s == pytest.approx(stages * both)
    interleaved = run(
        "interleaved_1f1b", stages, micro_batches, even(2 * stages, forward / 2, backward / 2), virtual_stages=2
    )
    assert interleaved.step_time_s == pytest.approx((micro_batches + (stages - 1) / 2) * both)


@given(sizes, seconds, seconds, st.integers(0, 5))
@settings(max_examples=30)
def test_no_flush_leaves_no_bubble(size: tuple[int, int], forward: int, backward: int, update: int) -> None:
    stages, micro_batches = size[0], size[0] * size[1]
    durations = Durations({"F": [forward] * stages, "B": [backward] * stages, "U": [update] * stages})
    timeline = run("2bw", stages, micro_batches, durations, batches=16)
    assert timeline.step_time_s == pytest.approx(micro_batches * (forward + backward) + update)


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (3, 6), (4, 8), (8, 16)])
def test_zero_bubble_waits_less(stages: int, micro_batches: int) -> None:
    steps = [
        run(schedule, stages, micro_batches, even(stages * parts, 1 / parts, 2 / parts), virtual_stages=parts)
        for schedule, parts in (("1f1b", 1), ("interleaved_1f1b", 2), ("zero_bubble", 1), ("zero_bubble", 2))
    ]
    one, interleaved, zero, zero_twice = (1 - 3 * micro_batches / timeline.step_time_s for timeline in steps)
    # ZB1P with F = I = G leaves a third of the bubble of 1F1B: (S - 1)(F + I - G) instead of (S - 1)(F + I + G).
    assert zero == pytest.approx((stages - 1) / (3 * micro_batches + stages - 1))
    assert zero_twice < zero < interleaved < one


@given(st.sampled_from(SHAPES), sizes, st.booleans(), st.data())
@settings(max_examples=60)
def test_no_step_is_under_the_bound(
    shape: tuple[str, int], size: tuple[int, int], recomputes: bool, data: st.DataObject
) -> None:
    schedule, virtual_stages = shape
    stages = size[0]
    micro_batches = 1 if schedule == "naive" else stages * size[1]
    if SCHEDULES[schedule].micro_batches_fault(stages, micro_batches) is not None:
        micro_batches *= 2
    parts = stages * virtual_stages
    forward, backward, update, weight = (data.draw(st.lists(seconds, min_size=parts, max_size=parts)) for _ in range(4))
    again = data.draw(st.lists(seconds, min_size=parts, max_size=parts)) if recomputes else [0.0] * parts
    durations = Durations({"F": forward, "B": backward, "U": update, "I": backward, "G": weight, "C": again})
    asked = schedule_with(schedule, recomputes=recomputes)
    program = Program.of_schedule(asked, stages, 8, micro_batches=micro_batches, virtual_stages=virtual_stages)
    step_time_s = simulate(program, durations, in_flight=micro_batches).step_time_s
    bound = unhindered_steps(program, durations)[0]
    assert step_time_s >= bound - 1e-9
    busy = [0.0] * stages
    for (kind, virtual), count in counts_of(asked, stages, micro_batches, virtual_stages).items():
        busy[asked.place(virtual, stages)] += count * durations.computing[kind][virtual]
    assert step_time_s >= max(busy) - 1e-9
    if schedule in ("naive", "gpipe") and not recomputes:
        assert step_time_s == pytest.approx(bound)


@pytest.mark.full
@given(st.sampled_from(SHAPES[1:]), st.tuples(st.integers(2, 5), st.integers(2, 4)), st.data())
@settings(max_examples=30)
def test_recomputing_before_the_gradient_is_never_slower(
    shape: tuple[str, int], size: tuple[int, int], data: st.DataObject
) -> None:
    """Than recomputing once it is there. Where all stages are alike, it is faster by one C of each stage that waits."""
    schedule, virtual_stages = shape
    stages, micro_batches = size[0], size[0] * size[1]
    parts = stages * virtual_stages
    asked = schedule_with(schedule, recomputes=True)
    early = Program.of_schedule(asked, stages, 4, micro_batches=micro_batches, virtual_stages=virtual_stages)
    late = Program.of(after_the_gradient(early.actions(stage)) for stage in range(stages))
    drawn = [data.draw(st.lists(seconds, min_size=parts, max_size=parts)) for _ in range(3)]
    forward, backward, weight = drawn
    durations = Durations({"F": forward, "B": backward, "I": backward, "G": weight, "C": forward})
    steps = [simulate(program, durations, in_flight=micro_batches).step_time_s for program in (early, late)]
    assert steps[0] <= steps[1] + 1e-9
    alike = Durations({**even(parts, 1, 2).computing, "C": [1.0] * parts})
    steps = [simulate(program, alike, in_flight=micro_batches).step_time_s for program in (early, late)]
    assert steps[0] < steps[1] or SCHEDULES[schedule].gradient_delay  # without a flush no stage waits


def test_uneven_gpipe_in_its_own_words() -> None:
    # Forwards: 1 + 3 + 2, and twice more the slowest, 3; backwards: 2 + 2 + 4, and twice more 4; then U of stage 0.
    durations = Durations({"F": [1, 3, 2], "B": [2, 2, 4], "U": [5, 1, 1]})
    assert run("gpipe", 3, 3, durations).step_time_s == (6 + 6) + (8 + 8) + 5
    # With a long update on stage 2, it cannot start the next mini-batch before: 2 * 3 + 4 * 3 + 40.
    durations = Durations({"F": [1, 3, 2], "B": [2, 2, 4], "U": [5, 1, 40]})
    assert run("gpipe", 3, 3, durations, batches=12).step_time_s == 58


@pytest.mark.parametrize(("schedule", "virtual_stages"), SHAPES)
def test_every_micro_batch_once_and_one_update(schedule: str, virtual_stages: int) -> None:
    stages, micro_batches = 3, 1 if schedule == "naive" else 6
    for stage in range(stages):
        order = computations(SCHEDULES[schedule], stage, stages, micro_batches, virtual_stages)
        own = held(SCHEDULES[schedule].place, stage, stages, virtual_stages)
        whole = [("I" if k == "B" else k, v, m) for k, v, m in order] + [("G", v, m) for k, v, m in order if k == "B"]
        assert sorted(whole) == sorted((k, v, m) for k in "FIG" for v in own for m in range(micro_batches))
        actions = [
            action
            for action in run_of(SCHEDULES[schedule], stage, stages, 6, micro_batches, virtual_stages)
            if action.batch == 5
        ]
        assert [str(action) for action in actions[-virtual_stages:]] == [f"{v}U5" for v in own]
        assert sum(action.kind == "U" for action in actions) == virtual_stages
    program = Program.of_schedule(
        SCHEDULES[schedule], stages, 2, micro_batches=micro_batches, virtual_stages=virtual_stages
    )
    made = tuple(program.actions(stage) for stage in range(stages))
    assert parse_program(print_program(made)) == made


def test_a_stage_alone_goes_through_its_virtual_stages_and_back() -> None:
    actions = SCHEDULES["interleaved_1f1b"].actions(0, 1, 0, 1, 2)
    assert " ".join(map(str, actions)) == "0F0 0S0 1R0 1F0 1B0 1S0v 0R0v 0B0 0U0 1U0"


def test_a_deadlock_between_virtual_stages_is_found() -> None:
    # Stage 0 wants the output of virtual stage 1 before it sends what 1 is made of.
    lists = parse_program("0F0 2R0 2F0 0S0\n1R0 1F0 1S0\n")
    with pytest.raises(PlanError) as caught:
        simulate(Program.of(lists), even(4, 1, 1), in_flight=4)
    message = caught.value.problems[0].message
    assert message.startswith("deadlock: ") and "`2R0`" in message and "`1R0`" in message


def test_messages_of_virtual_stages_have_their_own_edges() -> None:
    # Both edges go from stage 0 to stage 1 or back; each is matched by itself, in whatever order the lists have them.
    lists = parse_program("0F0 0S0 2R0 2F0 2S0 0F0.1 0S0.1\n1R0 1F0 1S0 1R0.1 1F0.1 3R0 3F0\n")
    with pytest.raises(PlanError, match="the message of `3R0` has 1 send and 0 receives"):
        simulate(Program.of(parse_program("0F0 0S0 2F0 2S0\n1R0 1F0\n")), even(4, 1, 1), in_flight=4)
    assert simulate(Program.of(lists), even(4, 1, 1), in_flight=4).duration_s == 6


@pytest.mark.parametrize(
    ("schedule", "stages", "micro_batches", "virtual_stages", "message"),
    [
        ("1f1b", 4, 3, 1, "pipeline.micro_batches: `1f1b` needs at least as many micro-batches as stages, got 3 for 4"),
        ("interleaved_1f1b", 2, 5, 2, "pipeline.micro_batches: `interleaved_1f1b` goes in rounds of one micro-batch"),
        ("zero_bubble", 4, 9, 1, "pipeline.micro_batches: `zero_bubble` goes in rounds of one micro-batch per stage"),
        ("naive", 2, 2, 1, "pipeline.micro_batches: `naive` does not cut mini-batches, got 2; leave it out"),
        ("streamed", 2, 2, 1, "pipeline.micro_batches: `streamed` does not cut mini-batches, got 2; leave it out"),
        ("gpipe", 2, 2, 2, "pipeline.virtual_stages: `gpipe` has one virtual stage on each stage, got 2"),
        ("interleaved_1f1b", 2, 2, 1, "pipeline.virtual_stages: `interleaved_1f1b` has 2 to 256 virtual stages"),
    ],
)
def test_demands(schedule: str, stages: int, micro_batches: int, virtual_stages: int, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        SCHEDULES[schedule].check(stages, micro_batches, virtual_stages)
    assert str(caught.value).startswith(message)
