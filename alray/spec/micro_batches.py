"""What the micro-batch schedules of backpropagation demand, in plain values: spec and plan ask the same questions.

The demands are those of the classes of torch.distributed.pipelining that execute the schedules.
"""

from __future__ import annotations

MICRO_BATCHED: tuple[str, ...] = ("gpipe", "1f1b", "interleaved_1f1b", "zero_bubble")
"""The schedules that cut a mini-batch into micro-batches."""
PIPELINES: tuple[str, ...] = ("naive", *MICRO_BATCHED)
"""The schedules in which gradients travel between stages."""
VIRTUAL: tuple[str, ...] = ("interleaved_1f1b", "zero_bubble")
"""The schedules that can give a stage several virtual stages: runs of components apart from each other."""

PER_STAGE = 2  # micro-batches per stage where the spec names none
MOST_MICRO_BATCHES = 65_536  # a program holds the number of a micro-batch in 16 bits
MOST_VIRTUAL_STAGES = 256  # and that of a virtual stage in 8

Fault = tuple[str, str]
"""What is wrong, and the mend."""


def default_micro_batches(schedule: str, stages: int) -> int:
    """Micro-batches of one mini-batch where none are given: two per stage; one in schedules that do not cut it."""
    return PER_STAGE * stages if schedule in MICRO_BATCHED else 1


def default_virtual_stages(schedule: str) -> int:
    """Virtual stages of each stage where none are given."""
    return 2 if schedule == "interleaved_1f1b" else 1


def micro_batches_fault(schedule: str, stages: int, micro_batches: int) -> Fault | None:
    """Why `schedule` cannot run so many micro-batches on so many stages; None where it can."""
    if schedule not in MICRO_BATCHED:
        if micro_batches == 1:
            return None
        return f"`{schedule}` does not cut mini-batches, got {micro_batches}", "leave it out"
    if not 1 <= micro_batches <= MOST_MICRO_BATCHES:
        return f"{micro_batches} micro-batches", f"use 1 to {MOST_MICRO_BATCHES}"
    if schedule == "1f1b" and micro_batches < stages:
        return (
            f"`1f1b` needs at least as many micro-batches as stages, got {micro_batches} for {stages}",
            f"use {stages} or more, or fewer stages",
        )
    rounds = max(1, micro_batches // stages)
    if schedule in VIRTUAL and micro_batches % rounds:
        return (
            f"`{schedule}` goes in rounds of one micro-batch per stage: {micro_batches} cannot be shared "
            f"evenly by {rounds} rounds",
            f"use a multiple of the {stages} stages, such as {stages * rounds} or {stages * (rounds + 1)}",
        )
    return None


def possible_micro_batches(schedule: str, stages: int, batch_size: int) -> list[int]:
    """The numbers of micro-batches that `auto` chooses from, the fewest first: one per stage or more, so that every
    stage has something to do."""
    return [
        number
        for number in range(stages, min(batch_size, MOST_MICRO_BATCHES) + 1)
        if batch_size % number == 0 and micro_batches_fault(schedule, stages, number) is None
    ]


def virtual_stages_fault(schedule: str, virtual_stages: int) -> Fault | None:
    """Why `schedule` cannot have so many virtual stages on each stage; None where it can."""
    if schedule not in VIRTUAL:
        if virtual_stages == 1:
            return None
        return (
            f"`{schedule}` has one virtual stage on each stage, got {virtual_stages}",
            f"leave it out, or choose {' or '.join(VIRTUAL)}",
        )
    if not 1 <= virtual_stages <= MOST_VIRTUAL_STAGES:
        return f"{virtual_stages} virtual stages", f"use 1 to {MOST_VIRTUAL_STAGES}"
    if schedule == "interleaved_1f1b" and virtual_stages == 1:
        return "one virtual stage on each stage cannot be interleaved", "use 2 or more, or the schedule 1f1b"
    return None


def batch_size_fault(batch_size: int, micro_batches: int) -> Fault | None:
    """Why a mini-batch cannot be cut into equal micro-batches; None where it can."""
    if batch_size % micro_batches == 0:
        return None
    return (
        f"a mini-batch of {batch_size} samples cannot be cut into {micro_batches} equal micro-batches",
        f"use a divisor of {batch_size}, or another data.batch_size",
    )


def micro_batch_norm_fault(component: str, micro_batches: int) -> Fault:
    """Why a component with batch normalisation is refused in a schedule with micro-batches.

    component: as messages name it. The spec knows this of the built-in blocks; of a class of the user's own only the
    engine does, and says the same.
    """
    return (
        f"{component} has batch normalisation: each of the {micro_batches} micro-batches would be normalised "
        "by itself, so the network is not the one that whole mini-batches train",
        "set pipeline.micro_batch_norm to accept, or choose the schedule naive",
    )
