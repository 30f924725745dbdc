"""A component of a chain of backpropagation: its gradient comes from the one above."""

from __future__ import annotations

import torch
from torch import nn

from alray.models.component import Component
from alray.models.encoder import Encoder
from alray.models.optimizers import Recipe
from alray.models.task import LearningTask


class BackpropagationComponent(Component):
    """Encoder f; the last component also has a classifier `head` and the loss."""

    def __init__(
        self,
        index: int,
        *,
        f: Encoder,
        head: nn.Module | None,
        optimizer: Recipe,
        learning: LearningTask,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(index, f)
        self.head = head
        self._learning = learning
        self._label_smoothing = label_smoothing
        self.train_with(optimizer, encoder=(f,) if head is None else (f, head))
        self.clip_norm = optimizer.section.clip_norm
        """Largest norm of the gradients of the whole network, which a component does not know."""
        for each in self._optimizers.values():
            each.clip_norm = None

    @property
    def updated(self) -> list[nn.Parameter]:
        """The parameters that have an optimizer."""
        return [parameter for optimizer in self._optimizers.values() for parameter in optimizer.parameters]

    @property
    def turn(self) -> nn.Module | None:
        return self.head

    def loss(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss of the task for scores `[N, classes]` and labels as the data gives them, a scalar."""
        with self.naming("the loss"):
            return self._learning.loss(scores, labels, self._label_smoothing)

    @property
    def loss_name(self) -> str:
        """The name of the loss in records."""
        return self._learning.loss_name
