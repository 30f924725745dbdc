"""Schedules that a file lists: what is read, and what is refused with row, cell and what to do."""

from __future__ import annotations

from typing import cast

import pytest

from alray.core.errors import PlanError
from alray.planning.prediction.program import Program
from alray.planning.prediction.simulate import unhindered_steps
from alray.planning.schedules.actions import ActionKind
from alray.planning.schedules.durations import Durations
from alray.planning.schedules.listed import is_listed, schedule_of, text_of
from alray.planning.schedules.placement import round_robin, v_shaped
from alray.planning.schedules.schedule import Computation, kinds_of
from alray.planning.schedules.table import SCHEDULES

from ...programs import computations

V = "0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1\n1F0,2F0,1F1,2F1,,2B0,1B0,2B1,1B1\n"


def as_file(schedule: str, stages: int, micro_batches: int, virtual_stages: int) -> str:
    """A schedule of alray as torch writes it."""
    rows = []
    for stage in range(stages):
        order = computations(SCHEDULES[schedule], stage, stages, micro_batches, virtual_stages)
        rows.append(",".join(f"{own}{'W' if kind == 'G' else kind}{part}" for kind, own, part in order))
    return "\r\n".join(rows) + "\r\n"


@pytest.mark.parametrize(
    ("schedule", "stages", "micro_batches", "virtual_stages"),
    [("gpipe", 2, 3, 1), ("1f1b", 3, 4, 1), ("interleaved_1f1b", 3, 6, 2), ("zero_bubble", 2, 4, 2), ("zb_v", 3, 5, 2)],
)
def test_a_file_with_the_list_of_a_schedule_is_that_schedule(
    schedule: str, stages: int, micro_batches: int, virtual_stages: int
) -> None:
    own, parts = SCHEDULES[schedule], (stages, 0, micro_batches, virtual_stages)
    found = schedule_of(text_of("mine.csv", as_file(schedule, stages, micro_batches, virtual_stages)))
    assert [found.actions(stage, *parts) for stage in range(stages)] == [
        own.actions(stage, *parts) for stage in range(stages)
    ]
    assert found.name == "mine.csv" and found.only_layout == (stages, micro_batches)
    assert (found.default_virtual_stages, found.place) == (virtual_stages, own.place)
    assert kinds_of(found, stages) == kinds_of(own, stages)


def test_torchs_cells_are_read() -> None:
    """Empty cells, W for G, and forwards and backwards at the same time."""
    from torch.distributed.pipelining.schedules import _Action

    together = _Action.from_str("(0F1;3B0)OVERLAP_F_B")
    text = text_of("v.csv", f"0F0,3F0,{together},3F1, 3I1 ,0B0,,3W1,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n\n")
    found = schedule_of(text)
    first: list[Computation] = [(cast(ActionKind, kind), int(own), int(part)) for own, kind, part in (
        "0F0", "3F0", "0F1", "3B0", "3F1", "3I1", "0B0", "3G1", "0B1")]  # fmt: skip
    assert computations(found, 0, 2, 2, 2) == first
    assert computations(schedule_of(text_of("v.csv", text.split("\n", 1)[1].replace("W", "G"))), 0, 2, 2, 2) == first


def test_placement_follows_from_the_rows() -> None:
    assert schedule_of(text_of("v.csv", V)).place is v_shaped
    turns = "0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0"
    assert schedule_of(text_of("turns.csv", turns)).place is round_robin


def test_cells_may_be_quoted() -> None:
    assert text_of("v.csv", '"0F0", "0B0" \r\n"1F0",1B0\r\n') == text_of("v.csv", "0F0,0B0\n1F0,1B0")


def test_the_bound_is_the_step_without_messages() -> None:
    """By hand: stage 1 begins its first B at 6 s and does four without a break; then comes the last one of stage 0."""
    for schedule, stages, micro_batches, step_s in ((text_of("v.csv", V), 2, 2, 16.0), ("dualpipe_v", 1, 4, 24.0)):
        parts = 2 * stages
        program = Program.of_schedule(SCHEDULES[schedule], stages, 8, micro_batches=micro_batches, virtual_stages=2)
        durations = Durations({"F": [1.0] * parts, "B": [2.0] * parts, "U": [0.0] * parts})
        assert unhindered_steps(program, durations)[0] == step_s


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has 0 rows"),
        ("0F0,0B0", "has 1 row"),
        ("0F0,0B0\n\n1F0,1B0", "row 2 has no computation"),
        ("0F0,0B0\n1F0,1X0", "row 2, cell 2: `1X0` is no computation"),
        ("0F0,0SEND_F0,0B0\n1F0,1B0", "row 1, cell 2: `0SEND_F0` is no computation"),
        ("0F0,0B0,0U0\n1F0,1B0", "row 1, cell 3: `0U0` is no computation"),
        ("0F0;0B0\n1F0,1B0", "row 1, cell 1: `0F0;0B0` is no computation"),
        ("00F0,0B0\n1F0,1B0", "row 1, cell 1: `00F0`"),
        ("0F0,0B0\n2F0,2B0", "virtual stage 1 is missing"),
        ("0F0,0B0,2F0,2B0\n1F0,1B0", "3 virtual stages on 2 stages"),
        ("0F0,0B0,1F0\n1F0,1B0", "virtual stage 1 is in rows 1 and 2"),
        ("1F0,1B0\n0F0,0B0", "are in rows 2, 1, which is neither round-robin nor V-shaped"),
        ("0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0", "in rows 1, 1, 2, 2"),
        ("0F0,0B0\n1F0,1B0,1F1,1B1", "row 1: micro-batch 1 of virtual stage 0 has nothing"),
        ("0F0,0F2,0B0,0B2\n1F0,1F2,1B0,1B2", "row 1: micro-batch 1 of virtual stage 0 has nothing"),
        ("0F0\n1F0,1B0", "row 1: micro-batch 0 of virtual stage 0 has `0F0`"),
        ("0F0,0B0\n1F0,1I0", "row 2: micro-batch 0 of virtual stage 1 has `1F0`, `1I0`"),
        ("0F0,0B0,0B0\n1F0,1B0", "row 1: micro-batch 0 of virtual stage 0 has `0F0`, `0B0`, `0B0`"),
        ("0F0,0F0,0B0\n1F0,1B0", "has `0F0`, `0F0`, `0B0`"),
        ("0B0,0F0\n1F0,1B0", "has `0B0`, `0F0`"),
        ("0F0,0B0\n1F0,1W0,1I0", "has `1F0`, `1W0`, `1I0`"),
        ("0F0,0I0,0B0\n1F0,1B0", "has `0F0`, `0I0`, `0B0`"),
        ("0F0,0I0,0W0,0W0\n1F0,1B0", "has `0F0`, `0I0`, `0W0`, `0W0`"),
    ],
)
def test_what_is_no_schedule_is_refused(content: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        schedule_of(text_of("mine.csv", content))
    (problem,) = caught.value.problems
    assert problem.message.startswith("mine.csv") and message in problem.message
    assert problem.hint and problem.key == "pipeline.schedule"


@pytest.mark.parametrize(
    ("content", "waits"),
    [
        ("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1", "stage 0 cannot do `0B0`, stage 1 cannot do `1F1`"),
        # A circle of three, of which no two wait for each other.
        (
            "0F0,3F0,3B0,0B0\n1F0,4F0,4B0,1B0\n5F0,2F0,5B0,2B0",
            "stage 0 cannot do `3F0`, stage 1 cannot do `4F0`, stage 2 cannot do `5F0`",
        ),
        ("0F0,3F0,3B0,0B0\n2F0,1F0,2B0,1B0", "stage 0 cannot do `3F0`, stage 1 cannot do `2F0`"),
    ],
)
def test_lists_that_wait_for_each_other_are_refused_in_one_sentence(content: str, waits: str) -> None:
    with pytest.raises(PlanError) as caught:
        schedule_of(text_of("mine.csv", content))
    message = caught.value.problems[0].message
    assert message == f"mine.csv: the stages wait for each other for ever: {waits}"


def test_a_names_ending_tells_a_file() -> None:
    assert is_listed("orders/mine.csv") and is_listed("mine.csv\n0F0,0B0\n1F0,1B0")
    assert not any(map(is_listed, ("gpipe", "auto", "mine.txt", 3, None)))
