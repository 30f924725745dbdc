"""One mini-batch through a stage, action by action, for tests that look between the actions."""

from __future__ import annotations

from collections.abc import Mapping

from alray.nn.component import LocalComponent
from alray.nn.encoder import Tensors
from alray.stage.stages.local_losses import LocalLossStage
from alray.stage.stages.stage import ActionStage, MiniBatch


def forward(stage: ActionStage, incoming: Tensors, step: int, micro_batch: int = 0) -> Tensors:
    """F, and L where losses are local; returns what the next stage gets."""
    batch = MiniBatch(step, incoming, lr=0.0, label_lr=0.0, samples=len(incoming["s"]))
    stage.forward(batch, micro_batch)
    if isinstance(stage, LocalLossStage):
        stage.label(batch)
    return batch.outgoing


def backward(stage: ActionStage) -> Mapping[int, Tensors]:
    """B of what was forwarded; returns the losses by component and name."""
    return stage.backward(MiniBatch(1, {}, lr=0.0, label_lr=0.0, samples=1))


def forward_step(component: LocalComponent, incoming: Tensors, step: int) -> Tensors:
    """F and L of one component; returns what the next one gets."""
    passed_on = component.encoder_step(incoming, step)
    return passed_on | component.label_step(incoming)
