"""Supervised contrastive parallel learning (SCPL; Wang 2022, arXiv 2602.00062), with its loss.

The loss compares the samples of one mini-batch, or of a replica's share of it (`gather`). For anchor i, A(i) is every
other sample, and P(i) the positives: those of A(i) with i's label. Codes z have norm 1, and
e_a = exp(z_i . z_a / temperature). The loss is a mean over the anchors that have a positive; without any it is
0, with gradients of zero.

No size here depends on the labels, so that costs can be counted on the meta device.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.nn import functional

from alray.config.sections.head import HeadOrAuto
from alray.models.component import ComparingComponent, read
from alray.models.encoder import Encoder, EncoderFacts, Tensors
from alray.models.method import MakePart, Method, NetworkFacts
from alray.models.optimizers import Recipe
from alray.models.readout import Features, Pooling, Readout, head_of
from alray.models.shape import Shape


class ContrastiveMethod(Method):
    """The fields are the keys of the section. The labels travel as
    they are, and the only route is the whole network.

    Deviation: the authors' code (minyaho/scpl on GitHub) divides an anchor's sum over its positives by |P(i)| + 1, and
    takes the mean over all anchors, those without a positive among them; here it is |P(i)|, and the mean over anchors
    with a positive, as in Khosla et al. Its cost was not measured. Its projections read all values of a map, through
    layers of 512 and 1,024; here maps are averaged to at most 4 x 4, and both layers are of `projection_dim`. It trains
    with Adam from 1e-3 to 1e-5.
    """

    def __init__(
        self,
        task: NetworkFacts,
        *,
        projection_dim: int,
        temperature: float,
        head: HeadOrAuto,
        label_smoothing: float,
        gather: bool = False,
    ) -> None:
        super().__init__(task)
        self.projection_dim = projection_dim
        self.head = head
        self.gather = gather
        self.temperature = temperature
        self.label_smoothing = label_smoothing

    def component(self, index: int, f: Encoder, facts: EncoderFacts, make: MakePart) -> ContrastiveComponent:
        make_component = partial(
            ContrastiveComponent,
            index,
            f=f,
            temperature=self.temperature,
            label_smoothing=self.label_smoothing,
            optimizer=self.task.optimizer,
        )
        if self.ends_route(index):
            classes = self.task.classes
            head = make("head", lambda: head_of(self.head, facts.output, classes=classes, pooling=facts.pooling))
            return make_component(head=head)
        width = self.projection_dim
        p = make("p", lambda: projection(facts.output, projection_dim=width, pool=4, pooling=facts.pooling))
        return make_component(p=p, gather=self.gather)

    def compares_samples(self) -> tuple[str, str] | None:
        if self.gather or self.task.num_components == 1:
            return None
        reason = "contrastive losses compare the samples of each replica's share of the mini-batch"
        return reason, "method.gather=true compares those of all replicas"


def projection(input: Shape, *, projection_dim: int, pool: int | None, pooling: Pooling = "mean") -> Readout:
    """p: `[N, *input] -> [N, projection_dim]`: a vector per sample, linear, ReLU, linear, both layers of that width.

    Source: Khosla et al. 2020, section 3.1 (two layers, used in training only).
    """
    features = Features(input, pool, pooling)
    return Readout(
        features, nn.Linear(features.width, projection_dim), nn.ReLU(), nn.Linear(projection_dim, projection_dim)
    )


class ContrastiveComponent(ComparingComponent):
    """Encoder f and projection p; the last component has a classifier `head` instead of p.

    The supervised contrastive loss of p(f(s)) trains f and p; the cross-entropy of head(f(s)) trains the last
    component. A mini-batch in which no two samples share a label gives gradients of zero, not None: momentum and weight
    decay still act.
    """

    def __init__(
        self,
        index: int,
        *,
        f: Encoder,
        p: nn.Module | None = None,
        head: nn.Module | None = None,
        temperature: float,
        label_smoothing: float,
        optimizer: Recipe,
        gather: bool = False,
    ) -> None:
        """Exactly one of `p` and `head` is given.

        Args:
            temperature: similarities are divided by it, above 0.
            label_smoothing: of the last component's cross-entropy, in [0, 1).
            gather: whether codes are compared over all replicas.
        """
        super().__init__(index, f, gathers=gather and p is not None)
        self.p = p
        self.head = head
        self.temperature = temperature
        self.label_smoothing = label_smoothing
        readout = p if head is None else head
        assert readout is not None and (p is None or head is None), "either p or head"
        self.train_with(optimizer, encoder=(f, readout))

    @property
    def turn(self) -> nn.Module | None:
        return self.head

    def codes(self, encoded: Tensors) -> torch.Tensor:
        assert self.p is not None, "the last component compares nothing"
        return read(self.p, encoded)

    def local_losses(self, encoded: Tensors, incoming: Tensors) -> tuple[Tensors, Tensors]:
        labels = incoming["labels"]
        if self.head is not None:
            scores = read(self.head, encoded)
            loss = functional.cross_entropy(scores, labels, label_smoothing=self.label_smoothing)
            return {"cross_entropy": loss}, {"labels": labels}
        codes, of_codes = self.compared(self.own_codes(encoded), labels)
        codes = functional.normalize(codes, dim=1)
        loss = supervised_contrastive(codes, of_codes, temperature=self.temperature)
        return {"contrastive": loss}, {"labels": labels}


def supervised_contrastive(codes: torch.Tensor, labels: torch.Tensor, *, temperature: float) -> torch.Tensor:
    """The mean over anchors of `-1/|P(i)| sum over p in P(i) of log(e_p / sum over a in A(i) of e_a)`.

    Returns a scalar, in nats. Source: Khosla et al. 2020 (Supervised Contrastive Learning), equation 2, L_out, with one
    view per sample.

    Args:
        codes: `[N, D]`, of norm 1.
        labels: `[N]`, class numbers.
    """
    logits, positives = _pairs(codes, labels, temperature)
    losses = torch.logsumexp(logits, 1, keepdim=True) - logits
    return _mean_over_anchors(losses, positives)


def _pairs(codes: torch.Tensor, labels: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """`z_i . z_a / temperature` `[N, N]`, lowest on the diagonal so that `exp` is 0 there; and which are positives."""
    same = torch.eye(len(codes), dtype=torch.bool, device=codes.device)
    # Not minus infinity: where there is no other sample at all, gradients would be infinity minus infinity.
    logits = (codes @ codes.T / temperature).masked_fill(same, torch.finfo(codes.dtype).min)
    return logits, (labels.unsqueeze(1) == labels.unsqueeze(0)) & ~same


def _mean_over_positives(values: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    """`[N, N] -> [N]`; 0 where an anchor has no positive."""
    return torch.where(positives, values, 0.0).sum(1) / positives.sum(1).clamp(min=1)


def _mean_over_anchors(losses: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    return _mean_over_positives(losses, positives).sum() / positives.any(1).sum().clamp(min=1)
