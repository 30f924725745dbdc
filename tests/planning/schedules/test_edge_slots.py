"""The room on edges: how many messages are ever on their way, and lists that can never run."""

from __future__ import annotations

import pytest

from alray.core.errors import PlanError
from alray.planning.schedules.edge_slots import most_in_use, slots_in_use

from ...programs import parse_program


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


def test_lists_that_wait_for_each_other_are_refused() -> None:
    """Stage 0 wants a gradient before it sends the second micro-batch, which stage 1 wants before any backward."""
    lower, upper = parse_program(
        "0F0 0S0 0R0v 0B0 0F0.1 0S0.1 0R0.1v 0B0.1 0U0\n1R0 1F0 1R0.1 1F0.1 1B0 1S0v 1B0.1 1S0.1v 1U0"
    )
    with pytest.raises(PlanError, match=r"`1R0\.1` waits for a message that is sent after `0R0v`"):
        slots_in_use(lower, upper, down=False)
