"""Actions print and parse. The drawings of tests/golden/timelines and torch's schedules hold their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alray.core.errors import PlanError
from alray.planning.prediction.program import Program
from alray.planning.schedules.actions import KINDS, Action, parse
from alray.planning.schedules.evaluation import evaluation_actions
from alray.planning.schedules.schedule import Schedule, run_of
from alray.planning.schedules.table import SCHEDULES

numbers = st.integers(0, 10**6)
messages = st.builds(Action, numbers, st.sampled_from("SR"), numbers, st.integers(0, 99), st.booleans())
others = st.builds(
    Action,
    numbers,
    st.sampled_from([k for k in KINDS if k not in "SR"]),
    numbers,
    st.integers(0, 99),
    down=st.just(False),
)


@given(messages | others)
def test_an_action_comes_back_from_its_text(action: Action) -> None:
    assert parse(str(action)) == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("2F0", Action(2, "F", 0)),
        ("12U345", Action(12, "U", 345)),
        ("2W0.1", Action(2, "W", 0, number=1)),
        ("1S0v", Action(1, "S", 0, down=True)),
        ("1S0.1", Action(1, "S", 0, number=1)),
        ("3L2", Action(3, "L", 2)),
        ("0R7.2v", Action(0, "R", 7, number=2, down=True)),
        ("2F0.3", Action(2, "F", 0, number=3)),
        ("5I1.12", Action(5, "I", 1, number=12)),
        ("0G0", Action(0, "G", 0)),
    ],
)
def test_texts(text: str, action: Action) -> None:
    assert parse(text) == action
    assert str(action) == text


@pytest.mark.parametrize("text", ["", "F0", "2F", "2X0", "2f0", "02F0", "2F00", "2F0.0", "2F0v", "2F0 ", "-1F0", "٢F0"])
def test_what_is_not_an_action_is_refused(text: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"`{text}` ")


def test_peers() -> None:
    assert [parse(text).peer for text in ("2S0", "2R0", "2S0v", "2R0v")] == [3, 1, 1, 3]
    with pytest.raises(ValueError, match="2F0 has no peer"):
        _ = parse("2F0").peer


def listed(
    schedule: Schedule, stages: int, batches: int, micro_batches: int, virtual_stages: int
) -> tuple[tuple[Action, ...], ...]:
    return tuple(
        tuple(run_of(schedule, stage, stages, batches, micro_batches, virtual_stages)) for stage in range(stages)
    )


@pytest.mark.parametrize("schedule", [schedule for schedule in SCHEDULES.values() if not schedule.one_stage])
def test_columns_hold_the_same_actions(schedule: Schedule) -> None:
    parts, virtual = schedule.default_micro_batches(4), schedule.default_virtual_stages
    made = Program.of_schedule(schedule, 4, 5, micro_batches=parts, virtual_stages=virtual)
    assert tuple(made.actions(stage) for stage in range(4)) == listed(schedule, 4, 5, parts, virtual)


def test_columns_hold_messages_that_go_down() -> None:
    lists = [evaluation_actions(stage, 3, 4) for stage in range(3)]
    assert [Program.of(lists).actions(stage) for stage in range(3)] == lists


def test_unknown_schedule_and_single_on_two_stages() -> None:
    with pytest.raises(PlanError, match="unknown schedule `gpip`; choose one of streamed, overlapped"):
        SCHEDULES["gpip"]
    with pytest.raises(PlanError, match="schedule `single` runs on one stage, not on 2"):
        SCHEDULES["single"].check(2, 1, 1)
