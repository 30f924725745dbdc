"""Lists of actions, simulated with messages that take no time and always find room.

That tells whether the lists can run at all, and how long their step takes at least.
"""

from __future__ import annotations

from collections.abc import Sequence

from alray.core.errors import PlanError
from alray.planning.schedules.actions import Action
from alray.planning.schedules.durations import Durations
from alray.planning.schedules.schedule import Actions, Bound

_MINI_BATCHES = 8  # as many as the prediction of a step simulates where stages drain after each
_Message = tuple[int, int, bool]
"""Virtual stage that it goes to, micro-batch, and whether it goes down."""


def list_bound(listed: Actions) -> Bound:
    """The bound of a schedule by its lists: their step, if messages take no time.

    Messages can only make a step longer, so no step is below it.
    """

    def bound(durations: Durations, stages: int, micro_batches: int) -> float:
        virtual_stages = len(durations.forward_s) // stages
        lists = [listed(stage, stages, 0, micro_batches, virtual_stages) for stage in range(stages)]
        begins, completed = [0.0] * stages, []
        for _ in range(_MINI_BATCHES):
            begins = ends_of(lists, durations, begins)
            completed.append(max(begins))
        middle = (_MINI_BATCHES - 1) // 2
        return (completed[-1] - completed[middle]) / (_MINI_BATCHES - 1 - middle)

    return bound


def ends_of(lists: Sequence[Sequence[Action]], durations: Durations, begins: Sequence[float]) -> list[float]:
    """When each stage is done with a mini-batch that it begins at these seconds.

    Args:
        lists: of each stage, for one mini-batch; there are no barriers in them.

    Raises:
        PlanError: where stages wait for each other for ever.
    """
    now, positions = list(begins), [0] * len(lists)
    sent: dict[_Message, float] = {}
    proceeds = True
    while proceeds:
        proceeds = False
        for stage, own in enumerate(lists):
            while positions[stage] < len(own):
                action = own[positions[stage]]
                if action.kind == "R":
                    arrival = sent.get((action.stage, action.number, action.down))
                    if arrival is None:
                        break
                    now[stage] = max(now[stage], arrival)
                elif action.kind == "S":
                    sent[action.peer, action.number, action.down] = now[stage]
                else:
                    seconds = durations.computations[action.kind]
                    now[stage] += seconds[action.stage] if len(seconds) else 0.0
                positions[stage] += 1
                proceeds = True
    if any(position < len(own) for position, own in zip(positions, lists, strict=True)):
        raise _deadlock(lists, positions)
    return now


def _deadlock(lists: Sequence[Sequence[Action]], positions: Sequence[int]) -> PlanError:
    """The error that names the stages that wait for each other, and for what."""
    makers = {
        (action.peer, action.number, action.down): (stage, own[place - 1])
        for stage, own in enumerate(lists)
        for place, action in enumerate(own)
        if action.kind == "S"
    }
    stage = next(stage for stage, own in enumerate(lists) if positions[stage] < len(own))
    passed: list[int] = []
    waits: list[str] = []
    while stage not in passed:
        passed.append(stage)
        wanted = lists[stage][positions[stage]]
        other, made = makers[wanted.stage, wanted.number, wanted.down]
        early = lists[stage][positions[stage] + 1]
        waits.append(f"stage {stage} cannot do `{cell(early)}` before stage {other} does `{cell(made)}`")
        stage = other
    return PlanError(
        f"the stages wait for each other for ever: {', '.join(waits[passed.index(stage) :])}",
        hint="move one of these computations",
        key="pipeline.schedule",
    )


def cell(action: Action) -> str:
    """A computation as files list it: virtual stage, kind, micro-batch."""
    return f"{action.stage}{action.kind}{action.number}"
