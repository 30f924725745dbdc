"""Each pipeline's order of computations is the one of the torch class that does the same."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from alray.planning.schedules.table import SCHEDULES

from ...programs import computations

CLASSES = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved_1f1b": "ScheduleInterleaved1F1B",
    "zero_bubble": "ScheduleInterleavedZeroBubble",
    "zb_v": "ScheduleZBVZeroBubble",
    "dualpipe_v": "ScheduleDualPipeV",
}
KINDS = {"F": "F", "B": "B", "I": "I", "W": "G"}  # torch's W is our G: here W is a barrier


def torch_order(
    schedule: str, stages: int, micro_batches: int, virtual_stages: int
) -> list[list[tuple[str, int, int]]]:
    """Of every stage: kind, virtual stage and micro-batch, as the class lists them."""
    from torch.distributed.pipelining import schedules as torch_schedules

    held = [
        SimpleNamespace(
            stage_index=chunk * stages,
            group_rank=0,
            group_size=stages,
            num_stages=stages * virtual_stages,
            submod=None,
            is_first=chunk == 0,
            is_last=chunk == virtual_stages - 1,
            has_backward=False,
        )
        for chunk in range(virtual_stages)
    ]
    asked = SCHEDULES[schedule]
    torch_class = getattr(torch_schedules, CLASSES[schedule])
    orders = torch_class(held if asked.fewest_virtual_stages is not None else held[0], micro_batches).pipeline_order
    found = []
    for stage in range(stages):
        parts = [part for action in orders[stage] if action is not None for part in action.sub_actions or (action,)]
        texts = [re.fullmatch(r"(\d+)([FBIW])(\d+)", str(part)) for part in parts]
        own = [(KINDS[text[2]], int(text[1]), int(text[3])) for text in texts if text is not None]
        if schedule == "1f1b" and stage == stages - 1:
            # torch's list for its display counts the last stage's forwards from 1; what it runs counts from 0.
            own = [(kind, part, number - (kind == "F")) for kind, part, number in own]
        found.append(own)
    return found


@pytest.mark.few
@pytest.mark.parametrize(
    ("schedule", "virtual_stages"),
    [
        ("gpipe", 1),
        ("1f1b", 1),
        ("interleaved_1f1b", 2),
        ("interleaved_1f1b", 3),
        ("zero_bubble", 1),
        ("zero_bubble", 2),
        ("zb_v", 2),
        ("dualpipe_v", 2),
    ],
)
def test_the_order_is_torchs(schedule: str, virtual_stages: int) -> None:
    compared = 0
    for stages in range(2, 7):
        for micro_batches in range(1, 14):
            if SCHEDULES[schedule].micro_batches_fault(stages, micro_batches) is not None:
                with pytest.raises(ValueError, match=r"(?i)number of microbatches|at least as many microbatches"):
                    torch_order(schedule, stages, micro_batches, virtual_stages)
                continue
            expected = torch_order(schedule, stages, micro_batches, virtual_stages)
            for stage in range(stages):
                assert (
                    computations(SCHEDULES[schedule], stage, stages, micro_batches, virtual_stages) == expected[stage]
                )
                compared += 1
    assert compared > 50


def test_naive_is_gpipe_with_one_micro_batch() -> None:
    expected = torch_order("gpipe", 3, 1, 1)
    assert [computations(SCHEDULES["naive"], stage, 3) for stage in range(3)] == expected
