"""The room on edges: how many messages are ever on their way."""

from __future__ import annotations

import pytest

from alray.planning.schedules.edge_slots import most_in_use


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
