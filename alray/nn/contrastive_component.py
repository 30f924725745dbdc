"""The components of supervised contrastive learning (SCPL): local losses that need s and the labels alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from alray.nn.component import LocalComponent
from alray.nn.contrastive import debiased_supervised_contrastive, supervised_contrastive
from alray.nn.encoder import Encoder, Tensors, stopped
from alray.nn.head import Readout
from alray.nn.optimizers import ComponentOptimizer
from alray.nn.pooling import Features, Pooling
from alray.nn.shape import Shape


def projection(input: Shape, *, projection_dim: int, pool: int | None, pooling: Pooling = "mean") -> Readout:
    """p: `[N, *input] -> [N, projection_dim]`: a vector per sample, linear, ReLU, linear, both layers of that width.

    Source: Khosla et al. 2020, section 3.1 (two layers, thrown away after training).
    """
    features = Features(input, pool, pooling)
    return Readout(
        features, nn.Linear(features.width, projection_dim), nn.ReLU(), nn.Linear(projection_dim, projection_dim)
    )


@dataclass(frozen=True)
class LocalObjective:
    """What the losses of supervised contrastive learning are to be.

    temperature: of the similarities, above 0; class_prior: tau+ of the debiased form, None for the plain one;
    label_smoothing: of the last component's cross-entropy, in [0, 1).
    """

    temperature: float
    class_prior: float | None
    label_smoothing: float

    def contrastive(self, codes: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Of codes `[N, D]`, brought to norm 1 here, and labels `[N]`: a scalar."""
        codes = functional.normalize(codes, dim=1)
        if self.class_prior is None:
            return supervised_contrastive(codes, labels, temperature=self.temperature)
        return debiased_supervised_contrastive(
            codes, labels, temperature=self.temperature, class_prior=self.class_prior
        )

    def cross_entropy(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Of class scores `[N, classes]` and labels `[N]`: a scalar."""
        return functional.cross_entropy(scores, labels, label_smoothing=self.label_smoothing)


class ContrastiveComponent(LocalComponent):
    """Supervised contrastive parallel learning (SCPL; Wang 2022, arXiv 2602.00062): encoder f, projection head p.

    The supervised contrastive loss of p(f(s)), brought to norm 1, trains f and p; what is passed on is stop(f(s)) and
    the labels. The last component of a network has a classifier `head` with cross-entropy in the place of p. Inference
    is all encoders and then that classifier: the only route is the whole network.

    A mini-batch in which no two samples share a label gives gradients that are zero, not none: momentum and weight
    decay go on.
    """

    def __init__(
        self,
        index: int,
        *,
        f: Encoder,
        p: nn.Module | None = None,
        head: nn.Module | None = None,
        objective: LocalObjective,
        optimizer: object,
    ) -> None:
        """Exactly one of `p` and `head` is given, `head` to the last component."""
        super().__init__()
        self.index = index
        self.f = f
        self.p, self.head = p, head
        self.objective = objective
        readout = p if head is None else head
        assert readout is not None and (p is None or head is None), "either p or head"
        self._optimizer = ComponentOptimizer([*f.parameters(), *readout.parameters()], optimizer)
        self._encoded: Tensors | None = None
        self._losses: Tensors | None = None

    @property
    def ends_route(self) -> bool:
        return self.head is not None

    def optimizers(self) -> dict[str, ComponentOptimizer]:
        return {"encoder": self._optimizer}

    def encoder_step(self, incoming: Tensors, step: int) -> Tensors:
        self._encoded = self.f.run(incoming, step)
        return stopped(self._encoded)

    def label_step(self, incoming: Tensors) -> Tensors:
        assert self._encoded is not None, "B before F"
        encoded, self._encoded = self._encoded, None
        labels = incoming["labels"]
        if self.head is not None:
            self._losses = {"cross_entropy": self.objective.cross_entropy(self._read(self.head, encoded), labels)}
        else:
            assert self.p is not None
            self._losses = {"contrastive": self.objective.contrastive(self._read(self.p, encoded), labels)}
        return {"labels": labels}

    def backward_step(self) -> Tensors:
        assert self._losses is not None, "gradients before losses"
        losses, self._losses = self._losses, None
        self._optimizer.zero_grad()
        for loss in losses.values():
            loss.backward()
        return {name: loss.detach() for name, loss in losses.items()}

    def update_step(self, lr: float, label_lr: float) -> None:
        self._optimizer.step(lr)

    def infer(self, incoming: Tensors, *purpose: str | int) -> Tensors:
        return stopped(self.f.run(incoming, *purpose))

    def code(self, outgoing: Tensors) -> torch.Tensor:
        """Class scores `[N, classes]`; the last component's alone."""
        assert self.head is not None, "the only route ends at the last component"
        return self._read(self.head, outgoing)

    def decode(self, t: torch.Tensor) -> torch.Tensor:
        """The class scores of the route as they are: there is no label chain."""
        return t

    @staticmethod
    def _read(readout: nn.Module, encoded: Tensors) -> torch.Tensor:
        result: torch.Tensor = readout(encoded["s"], encoded.get("mask"))
        return result
