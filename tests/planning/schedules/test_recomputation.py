"""Recomputation: where C stands in the lists, for every pipeline."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alray.planning.schedules.actions import COMPUTE, Action
from alray.planning.schedules.edge_slots import slots_in_use
from alray.planning.schedules.recomputation import schedule_with, with_recomputation
from alray.planning.schedules.table import SCHEDULES

from ...programs import parse_program

PIPELINES = [schedule.name for schedule in SCHEDULES.values() if schedule.is_pipeline]


@st.composite
def shapes(draw: st.DrawFn) -> tuple[str, int, int, int]:
    """Schedule, stages, micro-batches, virtual stages."""
    asked = SCHEDULES[draw(st.sampled_from(PIPELINES))]
    stages = draw(st.integers(1, 5))
    micro_batches = stages * draw(st.integers(1, 3)) if asked.cuts_mini_batches else 1
    virtual = (
        max(draw(st.integers(1, 3)), asked.default_virtual_stages) if asked.fewest_virtual_stages is not None else 1
    )
    return asked.name, stages, micro_batches, virtual


def lists(shape: tuple[str, int, int, int], *, recomputes: bool) -> list[tuple[Action, ...]]:
    name, stages, *parts = shape
    schedule = schedule_with(name, recomputes=recomputes)
    return [schedule.actions(stage, stages, 3, *parts) for stage in range(stages)]


def test_by_hand() -> None:
    """Stage 0 of two by 1f1b waits with two micro-batches. Stage 1 has each backward at once."""
    lower, upper = lists(("1f1b", 2, 2, 1), recomputes=True)
    assert " ".join(map(str, lower)) == "0F3 0S3 0F3.1 0S3.1 0C3 0R3v 0B3 0C3.1 0R3.1v 0B3.1 0U3"
    assert upper == lists(("1f1b", 2, 2, 1), recomputes=False)[1]


def test_a_backward_that_waits_for_no_gradient() -> None:
    """By gpipe the last stage does all forwards before its first backward."""
    upper = lists(("gpipe", 2, 2, 1), recomputes=True)[1]
    assert " ".join(map(str, upper)) == "1R3 1F3 1R3.1 1F3.1 1C3 1B3 1S3v 1C3.1 1B3.1 1S3.1v 1U3"


def test_a_list_of_ones_own() -> None:
    """Only what waits while another micro-batch is computed is computed again, whatever is received meanwhile."""
    (plain,) = parse_program("2R0 2F0 2S0 2R0v 2I0 2S0v 2R0.1 2F0.1 2S0.1 2G0 2R0.1v 2I0.1 2G0.1 2U0")
    again = with_recomputation(plain)
    assert [str(action) for action in again if action not in plain] == ["2C0.1"]
    assert str(again[list(map(str, again)).index("2C0.1") + 1]) == "2R0.1v"


@given(shapes())
def test_each_forward_that_waits_is_computed_again_once(shape: tuple[str, int, int, int]) -> None:
    for plain, again in zip(lists(shape, recomputes=False), lists(shape, recomputes=True), strict=True):
        assert tuple(action for action in again if action.kind != "C") == plain
        computed = [action for action in again if action.kind in COMPUTE]
        for place, action in enumerate(again):
            key = action.stage, action.number
            if action.kind == "C":
                follows = again[place + 1]
                assert (follows.stage, follows.number) == key
                assert follows.kind in "BI" or (follows.kind == "R" and follows.down)
            if action.kind in "BI" and shape[1] > 1:
                graph = computed[computed.index(action) - 1]
                assert graph.kind in "FC" and (graph.stage, graph.number) == key, "it was just computed"


@given(shapes())
def test_edges_need_no_more_room(shape: tuple[str, int, int, int]) -> None:
    """The input stays in its slot until the backward, with C as without."""
    plain, again = (
        [[action for _ in range(2) for action in own] for own in lists(shape, recomputes=recomputes)]
        for recomputes in (False, True)
    )
    for lower in range(shape[1] - 1):
        for source, goal, down in ((lower, lower + 1, False), (lower + 1, lower, True)):
            assert slots_in_use(again[source], again[goal], down=down) == slots_in_use(
                plain[source], plain[goal], down=down
            )


@pytest.mark.parametrize("name", ["streamed", "single"])
def test_other_schedules_stay_as_they_are(name: str) -> None:
    assert schedule_with(name, recomputes=True) is SCHEDULES[name]
