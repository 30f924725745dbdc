"""The actions of an evaluation, which are the same in every schedule."""

from __future__ import annotations

from typing import Literal

from alray.planning.schedules.actions import Action


def evaluation_actions(stage: int, stages: int, batches: int) -> tuple[Action, ...]:
    """The actions of `stage` of `stages` for inference over evaluation batches 0 to `batches` - 1.

    E goes up through the encoders; D comes down through the label decoders and ends at stage 0. A stage starts with
    min(batches, stages - stage) of E, then takes turns between D and E. Each stage is one batch further ahead than the
    stage above it, so no stage waits for a message from a stage that waits for it. There is no deadlock, even where an
    edge holds only one message.

        3 stages, 4 batches, E = D = 1
        stage 0   EEE..DED.D.D
        stage 1   .EE.DEDED.D.
        stage 2   ..EDEDEDED..
    """
    lower, upper = stage > 0, stage < stages - 1

    def passing(kind: Literal["E", "D"], batch: int) -> list[Action]:
        """Receive, compute and send, without what the ends of the pipeline have no stage for."""
        down = kind == "D"
        whole = [Action(stage, "R", batch, 0, down), Action(stage, kind, batch), Action(stage, "S", batch, 0, down)]
        receives, sends = (upper, lower) if down else (lower, upper)
        return whole[0 if receives else 1 : 3 if sends else 2]

    ahead = min(batches, stages - stage)
    actions = [action for batch in range(ahead) for action in passing("E", batch)]
    for batch in range(batches):
        actions += passing("D", batch)
        if batch + ahead < batches:
            actions += passing("E", batch + ahead)
    return tuple(actions)
