"""Schedules: the actions of one mini-batch on one stage, and of inference.

Each drawing shows two mini-batches on three stages with F = 1, B = 2, U = 1 and messages that take no time.

    streamed            no barrier: fills once per run, then every stage is always busy
        stage 0   FBBUFBBU
        stage 1   .FBBUFBBU
        stage 2   ..FBBUFBBU

    overlapped          the backward of a stage starts when its forward ends; one barrier per mini-batch
        stage 0   FBBU..FBBU..
        stage 1   .FBBU..FBBU.
        stage 2   ..FBBU..FBBU

    parallel_backward   all forwards, a barrier, all backwards at once, a barrier
        stage 0   F..BBUF..BBU
        stage 1   .F.BBU.F.BBU
        stage 2   ..FBBU..FBBU

    sequential          one stage after another: it sends when its update is done; one barrier per mini-batch
        stage 0   FBBU........FBBU........
        stage 1   ....FBBU........FBBU....
        stage 2   ........FBBU........FBBU

    single              one stage: FBBUFBBU

All of those with local losses give the same weights: what is sent was computed before the stage's own update. A send is
of the samples; label chains and losses, the first part of B, come right behind it, before a barrier too, and labels
follow the samples up.
The pipelines of backpropagation (naive, gpipe, 1f1b, interleaved_1f1b, zero_bubble) are in `alray.plan.pipelines`.
"""

from __future__ import annotations

from typing import cast

from alray.errors import PlanError
from alray.plan.actions import Action, ActionKind
from alray.plan.pipelines import check_pipeline, pipeline_actions
from alray.spec.micro_batches import PIPELINES

# The actions of one mini-batch on a stage between two others.
_STEPS: dict[str, str] = {
    "streamed": "RFSBU",
    "overlapped": "RFSBUW",
    "parallel_backward": "RFSWBUW",
    "sequential": "RFBUSW",
    "single": "FBU",
}
LOCAL: tuple[str, ...] = ("streamed", "overlapped", "parallel_backward", "sequential")
"""The schedules of local losses, in which nothing travels backwards."""
SCHEDULES: tuple[str, ...] = (*_STEPS, *PIPELINES)


def step_actions(
    schedule: str, stage: int, stages: int, batch: int, *, micro_batches: int = 1, virtual_stages: int = 1
) -> tuple[Action, ...]:
    """What `stage` of `stages` does for mini-batch `batch`, in order.

    The first stage receives nothing from below, the last sends nothing up, and a stage alone waits for nobody. Raises
    PlanError for an unknown schedule, for `single` on several stages, and for micro-batches or virtual stages that the
    schedule cannot have.
    """
    if schedule not in SCHEDULES:
        raise PlanError(
            f"unknown schedule `{schedule}`",
            mend=f"choose one of {', '.join(SCHEDULES)}",
            key="pipeline.schedule",
        )
    if schedule == "single" and stages != 1:
        raise PlanError(
            f"schedule `single` runs on one stage, not on {stages}",
            mend="set pipeline.stages to 1 or choose another schedule",
            key="pipeline.schedule",
        )
    check_pipeline(schedule, stages, micro_batches, virtual_stages)
    if schedule in PIPELINES:
        return pipeline_actions(schedule, stage, stages, batch, micro_batches, virtual_stages)
    absent = set()
    if stage == 0:
        absent.add("R")
    if stage == stages - 1:
        absent.add("S")
    if stages == 1:
        absent.add("W")
    kinds = [kind for kind in _STEPS[schedule] if kind not in absent]
    return tuple(
        Action(stage, cast(ActionKind, kind), batch, part=kinds[:place].count("W") if kind == "W" else 0)
        for place, kind in enumerate(kinds)
    )


def program(
    schedule: str, stages: int, batches: int, *, micro_batches: int = 1, virtual_stages: int = 1
) -> tuple[tuple[Action, ...], ...]:
    """The action lists of all stages for mini-batches 0 to `batches` - 1."""
    return tuple(
        tuple(
            action
            for batch in range(batches)
            for action in step_actions(
                schedule, stage, stages, batch, micro_batches=micro_batches, virtual_stages=virtual_stages
            )
        )
        for stage in range(stages)
    )


def evaluation_actions(stage: int, stages: int, batches: int) -> tuple[Action, ...]:
    """What `stage` of `stages` does to run inference over evaluation batches 0 to `batches` - 1.

    E goes up through the encoders, D comes down through the label decoders and ends at stage 0. A stage starts
    with min(batches, stages - stage) of E, then takes turns between D and E. A stage is one further ahead than
    the one above it, so every message that is waited for is sent without waiting for the one who waits: blocking
    receives with asynchronous sends cannot deadlock, even where an edge holds only one message.

        3 stages, 4 batches, E = D = 1
        stage 0   EEE..DED.D.D
        stage 1   .EE.DEDED.D.
        stage 2   ..EDEDEDED..
    """
    up: list[list[Action]] = []
    down: list[list[Action]] = []
    first, last = stage == 0, stage == stages - 1
    for batch in range(batches):
        going_up = [] if first else [Action(stage, "R", batch)]
        going_up.append(Action(stage, "E", batch))
        going_up += [] if last else [Action(stage, "S", batch)]
        up.append(going_up)
        coming_down = [] if last else [Action(stage, "R", batch, down=True)]
        coming_down.append(Action(stage, "D", batch))
        coming_down += [] if first else [Action(stage, "S", batch, down=True)]
        down.append(coming_down)
    ahead = min(batches, stages - stage)
    actions = [action for group in up[:ahead] for action in group]
    for batch in range(batches):
        actions += down[batch]
        if batch + ahead < batches:
            actions += up[batch + ahead]
    return tuple(actions)
