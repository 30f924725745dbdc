"""The step time no run of a schedule can be under, and the cut that makes it smallest.

Of stage s, F_s is the forward and B_s the backward with the update, seconds a mini-batch:

    streamed            max(F+B)             the slowest stage is always busy
    overlapped          max(F_0+..+F_s+B_s)  forwards follow each other, each backward starts behind its own
    parallel_backward   sum(F)+max(B)        every backward starts behind the last forward
    sequential          sum(F+B)             one stage at a time
    single              F+B

`overlapped` equals `parallel_backward` where the last stage's backward is the slowest, and is under it
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from alray.plan.costs import Costs
from alray.plan.partition import interval_sums, partition_intervals

FORMULAS: dict[str, str] = {
    "streamed": "max(F+B)",
    "overlapped": "max(F_0+..+F_s+B_s)",
    "parallel_backward": "sum(F)+max(B)",
    "sequential": "sum(F+B)",
    "single": "F+B",
}


def step_bound(schedule: str, forward_s: Sequence[float], backward_s: Sequence[float]) -> float:
    """Seconds; `backward_s` includes the update. One value a stage."""
    both = [forward + backward for forward, backward in zip(forward_s, backward_s, strict=True)]
    if schedule == "streamed":
        return max(both)
    if schedule == "overlapped":
        return max(come + backward for come, backward in zip(accumulate(forward_s), backward_s, strict=True))
    if schedule == "parallel_backward":
        return sum(forward_s) + max(backward_s)
    return sum(both)


def best_partition(schedule: str, costs: Costs, stages: int) -> tuple[int, ...]:
    """The cut with the smallest bound, messages between stages counted; ties as in `partition`.

    Every cut of `sequential` has the same bound; it gets the one that suits `streamed`.
    """
    forward = interval_sums([component.forward_s for component in costs.components])
    backward = interval_sums([component.backward_s + component.update_s for component in costs.components])
    # Half of a message is spent by the stage that sends it, half by the one that receives it.
    half = np.array([0.0, *(component.output_bytes * costs.edge_s_per_byte / 2 for component in costs.components)])
    half[-1] = 0.0
    if schedule == "overlapped":
        cost = forward[0][None, :] + backward
    elif schedule == "parallel_backward":
        cost = backward
    else:
        cost = forward + backward
    return partition_intervals(cost + half[:, None] + half[None, :], stages)
