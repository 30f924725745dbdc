"""How many updates a run makes, and at which rate: a run that makes none learns nothing."""

from __future__ import annotations

from collections.abc import Iterator

from alray.core.counting import counted
from alray.core.errors import PlanError
from alray.models.component import trainable
from alray.runtime.stage.learning_rate import Rates
from alray.runtime.workload import Workload


def require_an_update(workload: Workload) -> None:
    """Raise PlanError if no parameter is trained, if the run is shorter than an update, or if the rate of every update
    is 0."""
    network = workload.network
    if not any(trainable(network.component(index, "meta")) for index in range(len(network))):
        raise PlanError(
            "the run would learn nothing: no parameter of the network is trained, all have `requires_grad=False`",
            key="model",
            hint="leave some out of model.freeze, or let them require a gradient",
        )
    together, total = workload.spec.optimizer.accumulate, workload.total_steps
    if total < together:
        raise PlanError(
            f"the run would make no update: one takes {counted(together, 'mini-batch')}, "
            f"and the run has {counted(total, 'mini-batch')}",
            key="optimizer.accumulate",
            hint=f"set it to at most {total}, or make the run longer",
        )
    if not any(_rates(workload)):
        raise PlanError(
            f"the run would learn nothing: the learning rate is 0 in {_all(total // together)}",
            key="lr_schedule",
            hint="let the rate be above 0 at some mini-batch, or make the run longer",
        )


def note_on_length(workload: Workload) -> str | None:
    """A sentence on the mini-batches at the end of the run that make no update; None where there are none."""
    together, total = workload.spec.optimizer.accumulate, workload.total_steps
    if not (rest := total % together):
        return None
    return (
        f"the last {counted(rest, 'mini-batch')} of {total} make no update, because one takes {together} "
        f"(optimizer.accumulate); the checkpoint keeps their gradients for a resume that makes the run longer"
    )


def _rates(workload: Workload) -> Iterator[bool]:
    """Whether the rate is above 0, update by update."""
    together, total = workload.spec.optimizer.accumulate, workload.total_steps
    rates = Rates(workload.spec, workload.code)
    for step in range(together, total + 1, together):
        yield rates.at(step, data=workload.facts, total_steps=total) > 0.0


def _all(updates: int) -> str:
    return "its only update" if updates == 1 else f"all of its {updates} updates"
