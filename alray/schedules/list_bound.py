"""The bound of a list of actions: how long its step takes if messages take no time."""

from __future__ import annotations

from alray.schedules.actions import Action
from alray.schedules.durations import Durations
from alray.schedules.schedule import Actions, Bound

_MINI_BATCHES = 8  # as many as the prediction of a step simulates where stages drain after each


def list_bound(listed: Actions) -> Bound:
    """The bound of a schedule for which no formula is known: its lists are simulated, with messages that take no time.

    Messages can only make a step longer, so no step is below it.
    """

    def bound(durations: Durations, stages: int, micro_batches: int) -> float:
        virtual_stages = len(durations.forward_s) // stages
        lists = [listed(stage, stages, 0, micro_batches, virtual_stages) for stage in range(stages)]
        begins, completed = [0.0] * stages, []
        for _ in range(_MINI_BATCHES):
            begins = _ends(lists, durations, begins)
            completed.append(max(begins))
        middle = (_MINI_BATCHES - 1) // 2
        return (completed[-1] - completed[middle]) / (_MINI_BATCHES - 1 - middle)

    return bound


def _ends(lists: list[tuple[Action, ...]], durations: Durations, begins: list[float]) -> list[float]:
    """When each stage is done with a mini-batch that it begins at these seconds."""
    now, positions = list(begins), [0] * len(lists)
    sent: dict[tuple[int, int, bool], float] = {}
    while any(position < len(own) for position, own in zip(positions, lists, strict=True)):
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
    return now
