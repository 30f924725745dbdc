"""The actions of an evaluation, which are the same in every schedule."""

from __future__ import annotations

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
