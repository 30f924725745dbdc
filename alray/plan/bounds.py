"""The step time no run of a schedule can be under.

Of stage s, F_s is the forward and B_s the backward with the update, seconds a mini-batch:

    streamed            max(F+B)             the slowest stage is always busy
    overlapped          max(F_0+..+F_s+B_s)  forwards follow each other, each backward starts behind its own
    parallel_backward   sum(F)+max(B)        every backward starts behind the last forward
    sequential          sum(F+B)             one stage at a time
    single              F+B

`overlapped` equals `parallel_backward` where the last stage's backward is the slowest, and is under it
elsewhere.

The pipelines cut a mini-batch into M micro-batches; here B has no update U, f and b are those of one micro-batch:

    naive               sum(F+B)+U                           one stage at a time
    gpipe               sum(f+b)+(M-1)*(max(f)+max(b))+U     two flow shops, one behind the other
    1f1b                max(f_0+b_0+..+f_s-1+b_s-1+F_s+B_s)+U    the way to stage s, all its work, the way back
    interleaved_1f1b    the same, with the way through the first virtual stage of each stage
    zero_bubble         the same with I, the input's half of B, for b and B; or F+B+U of one stage if that is longer

U is the update of stage 0, where the way back ends. A way may also begin and end at a stage r above it: the next
mini-batch cannot start there before the update, so the bound is the largest over all r, with U_r.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from alray.plan.setting import Setting
from alray.plan.simulate import Durations

FORMULAS: dict[str, str] = {
    "streamed": "max(F+B)",
    "overlapped": "max(F_0+..+F_s+B_s)",
    "parallel_backward": "sum(F)+max(B)",
    "sequential": "sum(F+B)",
    "single": "F+B",
    "naive": "sum(F+B)+U",
    "gpipe": "sum(f+b)+(M-1)*(max(f)+max(b))+U",
    "1f1b": "max(f_0+b_0+..+f_s-1+b_s-1+F_s+B_s)+U",
    "interleaved_1f1b": "max(f_0+b_0+..+f_s-1+b_s-1+F_s+B_s)+U",
    "zero_bubble": "max(f_0+i_0+..+f_s-1+i_s-1+F_s+I_s)+U",
}


def step_bound(schedule: str, forward_s: Sequence[float], backward_s: Sequence[float]) -> float:
    """Seconds, of a schedule without micro-batches; `backward_s` includes the update. One value a stage."""
    both = [forward + backward for forward, backward in zip(forward_s, backward_s, strict=True)]
    if schedule == "streamed":
        return max(both)
    if schedule == "overlapped":
        return max(come + backward for come, backward in zip(accumulate(forward_s), backward_s, strict=True))
    if schedule == "parallel_backward":
        return sum(forward_s) + max(backward_s)
    return sum(both)


def pipeline_bound(schedule: str, durations: Durations, stages: int, micro_batches: int) -> float:
    """Seconds, of a pipeline of backpropagation.

    durations: of actions, one value a virtual stage.
    """
    forward, backward = durations.forward_s, durations.backward_s
    update = [sum(durations.update_s[stage::stages]) for stage in range(stages)]
    if schedule in ("naive", "gpipe"):
        more = micro_batches - 1
        return max(
            sum(forward[first:])
            + sum(backward[first:])
            + more * (max(forward[first:]) + max(backward[first:]))
            + update[first]
            for first in range(stages)
        )
    split = schedule == "zero_bubble"
    down = durations.input_gradient_s if split else backward
    way = [f + b for f, b in zip(forward, down, strict=True)]
    work = [micro_batches * sum(way[stage::stages]) for stage in range(stages)]
    rest = durations.weight_gradient_s if split else [0.0] * stages
    bound = 0.0
    for first in range(stages):
        if split:
            bound = max(bound, work[first] + micro_batches * sum(rest[first::stages]) + update[first])
        passed = 0.0
        for stage in range(first, stages):
            bound = max(bound, passed + work[stage] + rest[first] + update[first])
            passed += way[stage]
    return bound


def bound_of(setting: Setting, durations: Durations) -> float:
    """The bound of a setting's schedule, seconds, for what `action_durations` gives of a cut."""
    if setting.is_pipeline:
        return pipeline_bound(setting.schedule, durations, setting.stages, setting.micro_batches)
    backward = [b + u for b, u in zip(durations.backward_s, durations.update_s, strict=True)]
    return step_bound(setting.schedule, durations.forward_s, backward)
