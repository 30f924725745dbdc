"""One mini-batch through the components of a stage, action by action, for tests that look between the actions."""

from __future__ import annotations

from alray.models.component import LocalComponent
from alray.models.encoder import Tensors
from alray.runtime.stage.work.local_losses import LocalLosses
from alray.runtime.stage.work.work import ComponentLosses, MicroBatch, Work


def forward(work: Work, incoming: Tensors, step: int, micro_batch: int = 0) -> Tensors:
    """F, and L where losses are local; returns what the next stage gets."""
    batch = MicroBatch(step, incoming, samples=len(incoming["s"]), number=micro_batch)
    work.forward(batch)
    if isinstance(work, LocalLosses):
        work.label(batch)
    return batch.outgoing


def backward(work: Work, micro_batch: int = 0) -> ComponentLosses:
    """B of what was forwarded; returns the losses by component and name."""
    return work.backward(MicroBatch(1, {}, samples=1, number=micro_batch))


def forward_step(component: LocalComponent, incoming: Tensors, step: int) -> Tensors:
    """F and L of one component; returns what the next one gets."""
    passed_on = component.encoder_step(incoming, step)
    return passed_on | component.label_step(incoming)
