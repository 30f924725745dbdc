"""The room on edges: how many messages are ever on their way, and lists that can never run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alray.core.errors import PlanError
from alray.planning.schedules.actions import Action
from alray.planning.schedules.edge_slots import most_in_use, slots_in_use
from alray.planning.schedules.table import SCHEDULES

from ...programs import parse_program

PIPELINES = [schedule.name for schedule in SCHEDULES.values() if schedule.is_pipeline]


@pytest.mark.parametrize(
    ("schedule", "stages", "micro_batches", "virtual_stages", "up", "down"),
    [
        ("naive", 3, 1, 1, 1, 1),
        ("gpipe", 4, 8, 1, 8, 8),
        ("1f1b", 16, 64, 1, 16, 16),
        ("2bw", 16, 16, 1, 16, 16),
        ("zero_bubble", 4, 16, 1, 6, 4),
        ("interleaved_1f1b", 16, 64, 2, 47, 47),
    ],
)
def test_known_rooms(schedule: str, stages: int, micro_batches: int, virtual_stages: int, up: int, down: int) -> None:
    parts = stages, micro_batches, virtual_stages
    assert most_in_use(schedule, 0, 1, *parts, down=False) == up
    assert most_in_use(schedule, 1, 0, *parts, down=True) == down


@pytest.mark.full
@given(
    st.sampled_from(PIPELINES),
    st.integers(2, 5),
    st.integers(1, 4),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_no_order_of_events_needs_more(schedule: str, stages: int, rounds: int, virtual: int, random) -> None:  # type: ignore[no-untyped-def]
    """Stages that do their lists in any order of time never have more on an edge, and all of them come to the end."""
    asked = SCHEDULES[schedule]
    micro_batches = 1 if schedule == "naive" else stages * rounds
    if asked.micro_batches_fault(stages, micro_batches) is not None:
        micro_batches *= 2
    virtual = (
        min(max(virtual, asked.default_virtual_stages), asked.most_virtual_stages) if asked.has_virtual_stages else 1
    )
    lists = [asked.run_of(stage, stages, 3, micro_batches, virtual) for stage in range(stages)]
    last = [_last_uses(own) for own in lists]
    positions, arrived, in_use = [0] * stages, set[tuple[int, int, int, bool]](), dict[tuple[int, int, bool], int]()
    while any(position < len(own) for position, own in zip(positions, lists, strict=True)):
        able = [
            stage
            for stage in range(stages)
            if positions[stage] < len(lists[stage]) and not _waits(lists[stage][positions[stage]], arrived)
        ]
        assert able, "a deadlock"
        stage = random.choice(able)
        action = lists[stage][positions[stage]]
        if action.kind == "S":
            arrived.add((action.batch, action.peer, action.number, action.down))
            edge = (stage, asked.place(action.peer, stages), action.down)
            in_use[edge] = in_use.get(edge, 0) + 1
            most = most_in_use(schedule, edge[0], edge[1], stages, micro_batches, virtual, down=action.down)
            assert in_use[edge] <= most
        for edge in last[stage].get(positions[stage], ()):
            in_use[asked.place(edge[0], stages), stage, edge[1]] -= 1
        positions[stage] += 1


def _waits(action: Action, arrived: set[tuple[int, int, int, bool]]) -> bool:
    return action.kind == "R" and (action.batch, action.stage, action.number, action.down) not in arrived


def _last_uses(own: list[Action]) -> dict[int, list[tuple[int, bool]]]:
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


def test_lists_that_wait_for_each_other_are_refused() -> None:
    """Stage 0 wants a gradient before it sends the second micro-batch, which stage 1 wants before any backward."""
    lower, upper = parse_program(
        "0F0 0S0 0R0v 0B0 0F0.1 0S0.1 0R0.1v 0B0.1 0U0\n1R0 1F0 1R0.1 1F0.1 1B0 1S0v 1B0.1 1S0.1v 1U0"
    )
    with pytest.raises(PlanError, match=r"`1R0\.1` waits for a message that is sent after `0R0v`"):
        slots_in_use(lower, upper, down=False)
