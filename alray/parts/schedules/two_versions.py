"""2bw: 1f1b without a flush. A stage begins the next mini-batch while the gradients of the last one still come down.

Two mini-batches of four micro-batches on three stages with F = 1 s and B = 2 s; updates and messages take no time:

    stage 0   FFF....BBFBBFBBFBBFBBFBB.BB.BB
    stage 1   .FF..BBFBBFBBFBBFBBFBBFBB.BB..
    stage 2   ..FBBFBBFBBFBBFBBFBBFBBFBB....

With such times no stage waits between two cuts once it has begun. Where times vary, a stage waits for a slower one.
Mini-batch t is computed with the weights W(t-1), and its gradient updates W(t) to W(t+1). So a stage holds two versions
of its weights, and gradients are one update late. Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training",
ICML 2021, section 3.1 (double-buffered weight updates). A cut between two mini-batches, such as an evaluation, flushes
the pipeline; the weights do not depend on where cuts are.
"""

from __future__ import annotations

from alray.planning.schedules.actions import Action
from alray.planning.schedules.micro_batches import one_per_stage
from alray.planning.schedules.pipeline import with_messages
from alray.planning.schedules.schedule import Computation, Schedule


def order(stage: int, stages: int, micro_batches: int, virtual_stages: int) -> list[Computation]:
    """A forward and a backward in turns. Backwards with a number below 0 are the last ones of the mini-batch before."""
    late = stages - stage - 1  # micro-batches whose forward is done and whose gradient has not come
    listed: list[Computation] = []
    for number in range(micro_batches):
        listed += [("F", stage, number), ("B", stage, number - late)]
    return listed


_listed = with_messages(order)


def actions(stage: int, stages: int, batch: int, micro_batches: int = 1, virtual_stages: int = 1) -> tuple[Action, ...]:
    """What a stage does from its first forward of `batch` until the first forward of the next mini-batch.

    At first it completes the mini-batch before. Of that one it has at most as many micro-batches under way as there are
    stages, so a micro-batch has ended before the one with the same number begins.
    """
    *computed, update = _listed(stage, stages, batch, micro_batches, virtual_stages)
    found = [
        action._replace(batch=batch - 1, number=action.number + micro_batches) if action.number < 0 else action
        for action in computed
    ]
    last = max(place for place, action in enumerate(found) if _ends(action, micro_batches))
    return (*found[: last + 1], update._replace(batch=found[last].batch), *found[last + 1 :])


def _ends(action: Action, micro_batches: int) -> bool:
    """Whether it belongs to the last backward of a mini-batch."""
    return action.number == micro_batches - 1 and (action.down or action.kind == "B")


SCHEDULE = Schedule(
    name="2bw",
    methods="backpropagation",
    actions=actions,
    demand=one_per_stage("2bw"),
    gradient_delay=1,
)
