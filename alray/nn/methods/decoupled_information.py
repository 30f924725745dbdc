"""Decoupled learning with information regularisation (DeInfoReg, 2025): codes match the labels and do not repeat."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from alray.nn.component import ComparingComponent, read
from alray.nn.encoder import Encoder, EncoderFacts, Tensors
from alray.nn.methods.local_error import similarities, similarities_of_classes
from alray.nn.methods.method import MakePart, Method, Task
from alray.nn.readout import Features, Readout, head_of
from alray.spec.method import HeadOrAuto
from alray.spec.optimizer import Optimizer


class DecoupledInformation(Method):
    """The fields are those of the section `alray.spec.method.DecoupledInformation`. Every depth is a route.

        h_l = f_l(stop(h_{l-1}))        z = p_l(h_l) [N, D], every row divided by its length
        variance     mean over d of max(0, 1 - sqrt(Var(z_d) + 1e-7)) / N
        invariance   mean squared difference of S(z) and S(onehot(y)), as in `local_error`
        covariance   sum over i != j of Cov(z)_ij^2 / D, with Cov(z) = (z - mean)^T (z - mean) / N
        L_l          their sum; it trains f_l and the projector p_l
        CE(W_l stop(h_l), y)            trains the classifier W_l, the part `head`, and nothing below it

    The projector has three layers with ReLU between them, or is the identity, as in the paper's networks for text.

    Pitfalls: rows have length 1, so the standard deviation of a value is near 1 / sqrt(D), and the variance term is far
    from 0 and, divided by N, nearly without effect. The terms compare samples, so they depend on the share of a
    replica: `gather` compares all. The paper trains with LARS, from a rate of 0.2 to 0.002 over 200 epochs.

    The paper claims early exits by confidence (`alray study` with `early_exit`), and a throughput of up to 2.1 times
    that of backpropagation without a pipeline; no figure of it is small enough to stand here.
    Source: arXiv 2506.18193, Neurocomputing 651.
    """

    def __init__(self, task: Task, *, projection_dim: int | None, head: HeadOrAuto, gather: bool) -> None:
        super().__init__(task)
        self.projection_dim = projection_dim
        self.head = head
        self.gather = gather

    def component(self, index: int, f: Encoder, facts: EncoderFacts, make: MakePart) -> InformationComponent:
        classes, width = self.task.classes, self.projection_dim

        def projector() -> Readout:
            features = Features(facts.output, 4, facts.pooling)
            if width is None:
                return Readout(features)
            first, second, third = (nn.Linear(given, width) for given in (features.width, width, width))
            return Readout(features, first, nn.ReLU(), second, nn.ReLU(), third)

        return InformationComponent(
            index,
            f=f,
            p=make("p", projector),
            head=make("head", lambda: head_of(self.head, facts.output, classes=classes, pooling=facts.pooling)),
            classes=classes,
            gathers=self.gather,
            optimizer=self.task.optimizer,
        )

    def ends_route(self, index: int) -> bool:
        """Every depth is a route."""
        return True

    def compares_samples(self) -> tuple[str, str] | None:
        if self.gather:
            return None
        reason = "variances, covariances and similarities are those of each replica's share of the mini-batch"
        return reason, "method.gather=true takes those of all replicas"


class InformationComponent(ComparingComponent):
    """Encoder f, projector p and a classifier `head` that trains on what f gives without changing it."""

    def __init__(
        self,
        index: int,
        *,
        f: Encoder,
        p: nn.Module,
        head: nn.Module,
        classes: int,
        gathers: bool,
        optimizer: Optimizer,
    ) -> None:
        super().__init__(index, f, gathers=gathers)
        self.p = p
        self.head = head
        self.classes = classes
        self.train_with(optimizer, encoder=(f, p, head))

    @property
    def turn(self) -> nn.Module:
        return self.head

    def codes(self, encoded: Tensors) -> torch.Tensor:
        return read(self.p, encoded)

    def local_losses(self, encoded: Tensors, incoming: Tensors) -> tuple[Tensors, Tensors]:
        labels = incoming["labels"]
        cross_entropy = functional.cross_entropy(read(self.head, {**encoded, "s": encoded["s"].detach()}), labels)
        codes, classes = self.compared(encoded, labels)
        return {"information": information(codes, classes, self.classes), "cross_entropy": cross_entropy}, {
            "labels": labels
        }


def information(codes: torch.Tensor, labels: torch.Tensor, classes: int) -> torch.Tensor:
    """Variance, invariance and covariance of codes `[N, D]` with class numbers `[N]`, added up: a scalar.

    With one sample there is no variance: torch gives NaN, and a mini-batch of one is to be left out.
    """
    samples, width = codes.shape
    z = functional.normalize(codes, dim=1)
    variance = functional.relu(1 - (z.var(0) + 1e-7).sqrt()).mean() / samples
    invariance = functional.mse_loss(similarities(z), similarities_of_classes(labels, classes, z.dtype))
    centred = z - z.mean(0)
    squares = (centred.T @ centred / samples).square()
    covariance = (squares.sum() - squares.diagonal().sum()) / width
    return variance + invariance + covariance
