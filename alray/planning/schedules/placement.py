"""Placement: which stage holds which virtual stage.

    2 virtual stages on each of 3 stages     stage 0   stage 1   stage 2
    round-robin                                0 3       1 4       2 5
    V-shaped                                   0 5       1 4       2 3

In both, each stage holds one of the first S virtual stages, one of the next S, and so on. So virtual stage v is number
v // S of those that its stage holds, counted from 0.
"""

from __future__ import annotations

from collections.abc import Callable

Place = Callable[[int, int], int]
"""Takes a virtual stage and the number of stages. Returns the stage that holds it."""


def round_robin(virtual: int, stages: int) -> int:
    """Stage s of S holds virtual stages s, s + S, s + 2S and so on: outputs of the last stage go to the first one."""
    return virtual % stages


def v_shaped(virtual: int, stages: int) -> int:
    """Stage s of S holds virtual stages s and 2S - 1 - s. Further ones go up and down again, as in a W.

    The two virtual stages of a turn lie on one stage, which hands the output over to itself.
    """
    row, place = divmod(virtual, stages)
    return stages - 1 - place if row % 2 else place


PLACES: tuple[Place, ...] = (round_robin, v_shaped)
"""Every placement."""


def held(place: Place, stage: int, stages: int, virtual_stages: int) -> list[int]:
    """The virtual stages that a stage holds, the lowest first."""
    return [virtual for virtual in range(stages * virtual_stages) if place(virtual, stages) == stage]
