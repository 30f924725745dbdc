"""Micro-batches and virtual stages: how many there may be, and the error where there cannot be so many."""

from __future__ import annotations

from collections.abc import Callable

PER_STAGE = 2
"""Micro-batches per stage where the spec names no number."""
MOST_PER_STAGE = 4
"""Most micro-batches per stage where the spec names no number, and `PER_STAGE` does not divide the mini-batch."""
MOST_MICRO_BATCHES = 65_536
"""More would take long to simulate, and a typing error is more likely."""
MOST_VIRTUAL_STAGES = 256
"""On each stage. More is more likely a typing error."""

Fault = tuple[str, str]
"""A message that says what is wrong, and the hint that says how to correct it."""
Demand = Callable[[int, int], Fault | None]
"""Takes the numbers of stages and micro-batches. Returns why a schedule cannot run them; None if it can."""


def any_number(stages: int, micro_batches: int) -> Fault | None:
    """The demand of a schedule that runs any number of micro-batches."""
    return None


def one_per_stage(schedule: str) -> Demand:
    """The demand of a schedule that needs at least as many micro-batches as stages."""

    def demand(stages: int, micro_batches: int) -> Fault | None:
        if micro_batches >= stages:
            return None
        return (
            f"`{schedule}` needs at least as many micro-batches as stages, got {micro_batches} for {stages}",
            f"use {stages} or more, or fewer stages",
        )

    return demand


def whole_rounds(schedule: str) -> Demand:
    """The demand of a schedule whose micro-batches go in rounds of at least one per stage, all of the same size. Fewer
    micro-batches than stages are one round."""

    def demand(stages: int, micro_batches: int) -> Fault | None:
        rounds = max(1, micro_batches // stages)
        if micro_batches % rounds == 0:
            return None
        return (
            f"`{schedule}` goes in rounds of one micro-batch per stage: {micro_batches} cannot be shared "
            f"evenly by {rounds} rounds",
            f"use a multiple of the {stages} stages, such as {stages * rounds} or {stages * (rounds + 1)}",
        )

    return demand


def batch_size_fault(batch_size: int, micro_batches: int) -> Fault | None:
    """Why a mini-batch cannot be cut into equal micro-batches; None where it can."""
    if batch_size % micro_batches == 0:
        return None
    return (
        f"a mini-batch of {batch_size} samples cannot be cut into {micro_batches} equal micro-batches",
        f"use a divisor of {batch_size}, or another data.batch_size",
    )


def micro_batch_norm_fault(component: str, micro_batches: int, has: str = "has batch normalisation") -> Fault:
    """Why a component with batch normalisation is refused where mini-batches are cut.

    The spec knows which built-in blocks have batch normalisation. Whether a user's class has it is known once the
    network is built; the run then raises the same fault.

    Args:
        component: its name in messages.
        has: what computes a sample from the others.
    """
    return (
        f"{component} {has}: each of the {micro_batches} micro-batches would be normalised "
        "by itself, so the network is not the one that whole mini-batches train",
        "set pipeline.micro_batch_norm to accept, or choose the schedule naive",
    )
