"""Decoupled learning with information regularisation (DeInfoReg, 2025): codes match the labels and do not repeat."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from alray.models.component import ComparingComponent, read
from alray.models.encoder import Encoder, EncoderFacts, Tensors
from alray.models.method import MakePart, Method, NetworkFacts
from alray.models.optimizers import Recipe
from alray.models.readout import Features, Readout
from alray.models.similarities import similarities, similarities_of_classes

CLASSIFIER_WEIGHT = 0.001
"""Of the cross-entropy beside the terms of a component: that of the authors' code."""


class InformationMethod(Method):
    """The fields are the keys of the section. Every depth is a route.

        h_l = f_l(stop(h_{l-1}))        c = p_l(h_l)        z = c, every row divided by its length, [N, D]
        variance     mean over d of max(0, 1 - sqrt(Var(z_d) + 1e-7)) / N
        invariance   mean squared difference of S(z) and S(onehot(y)), as in `local_error`
        covariance   sum over i != j of Cov(z)_ij^2 / D, with Cov(z) = (z - mean)^T (z - mean) / N
        L_l          their sum + 0.001 CE(o_l(c), y); it trains f_l, p_l and o_l
        prediction   argmax of o_l(c)

    The projector p_l is linear, batch normalisation, ReLU, linear, batch normalisation, ReLU, linear, all of width D.
    The classifier o_l, the part `head`, goes on from there: batch normalisation, ReLU, linear. Without a projector, as
    in the authors' networks for text, p_l only pools what the encoder gives, and o_l is tanh, linear. This is the
    authors' code (ianzih/Decoupled-Supervised-Learning-for-Information-Regularization on GitHub) with its default
    `merge`.

    Pitfalls: rows have length 1, so the standard deviation of a value is near 1 / sqrt(D), and the variance term is far
    from 0 and, divided by N, nearly without effect. The terms compare samples, so they depend on the share of a
    replica: `gather` compares all. Routes need the projectors, which may be larger than the encoders. The authors train
    pictures with LARS, from a rate of 0.2 to 0.002 over 200 epochs, and texts with Adam at 1e-3.

    Deviation: the authors' projector reads all values of a map; here maps are averaged to at most 4 x 4 first. Its cost
    was not measured. Their early exit compares the classes and the cosine of the scores of two depths, that of `alray
    study` the confidence of one. They take the epoch and the depth with the highest accuracy on the test set; here the
    last epoch and the last depth count. Their codes of texts are the mean of both final states of an LSTM; here these
    are added.

    The paper claims early exits, and a throughput of up to 2.1 times that of backpropagation without a pipeline; no
    figure of it is small enough to stand here.
    Source: arXiv 2506.18193, Neurocomputing 651.
    """

    def __init__(
        self,
        task: NetworkFacts,
        *,
        projection_dim: int | None,
        gather: bool,
    ) -> None:
        super().__init__(task)
        self.projection_dim = projection_dim
        self.gather = gather
        self.normalises_batches = projection_dim is not None

    def component(self, index: int, f: Encoder, facts: EncoderFacts, make: MakePart) -> InformationComponent:
        features = Features(facts.output, 4, facts.pooling)
        classes, width = self.task.classes, self.projection_dim

        def projector() -> Readout:
            if width is None:
                return Readout(features)
            return Readout(
                features,
                nn.Linear(features.width, width),
                nn.BatchNorm1d(width),
                nn.ReLU(),
                nn.Linear(width, width),
                nn.BatchNorm1d(width),
                nn.ReLU(),
                nn.Linear(width, width),
            )

        def classifier() -> nn.Sequential:
            if width is None:
                return nn.Sequential(nn.Tanh(), nn.Linear(features.width, classes))
            return nn.Sequential(nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, classes))

        return InformationComponent(
            index,
            f=f,
            p=make("p", projector),
            head=make("head", classifier),
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
    """Encoder f, projector p, and a classifier `head` of the projector's codes."""

    def __init__(
        self,
        index: int,
        *,
        f: Encoder,
        p: nn.Module,
        head: nn.Module,
        classes: int,
        gathers: bool,
        optimizer: Recipe,
    ) -> None:
        super().__init__(index, f, gathers=gathers)
        self.p = p
        self.head = head
        self.classes = classes
        self.train_with(optimizer, encoder=(f, p, head))

    @property
    def turn(self) -> nn.Module:
        return OfCodes(self.p, self.head)

    def codes(self, encoded: Tensors) -> torch.Tensor:
        return read(self.p, encoded)

    def local_losses(self, encoded: Tensors, incoming: Tensors) -> tuple[Tensors, Tensors]:
        """`cross_entropy` has its weight in the sum."""
        labels = incoming["labels"]
        own = self.own_codes(encoded)
        codes, classes = self.compared(own, labels)
        return {
            "information": information(codes, classes, self.classes),
            "cross_entropy": CLASSIFIER_WEIGHT * functional.cross_entropy(self.head(own), labels),
        }, {"labels": labels}


class OfCodes(nn.Module):
    """`[N, *output of the encoder] -> [N, classes]`: class scores from a projector's codes."""

    def __init__(self, p: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.p = p
        self.head = head

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Args:
            mask: [N, T] bool, where `s` is a sequence [N, T, D] whose rows differ in length.
        """
        scores: torch.Tensor = self.head(self.p(s, mask))
        return scores


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
