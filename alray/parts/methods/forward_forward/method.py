"""Forward-Forward (FF; Hinton 2022): two forward passes, of right and of wrong labels, differ in goodness."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from alray.core.errors import SpecError
from alray.models.component import LocalComponent, Passage, read
from alray.models.encoder import Encoder, EncoderFacts, Tensors
from alray.models.method import MakePart, Method, NetworkFacts
from alray.models.optimizers import Recipe
from alray.models.readout import Features, Readout
from alray.models.shape import Shape

_MOMENTUM = 0.9  # of the mean activities
_FIRST_ACTIVITY = 0.5


class ForwardForwardMethod(Method):
    """The fields are the keys of the section. Every depth is a route.

        x+, x-        the sample with its label, and with a wrong one, in place of its first J values (J classes)
        a_l = f_l(norm(stop(a_{l-1})))              norm divides a row by its root mean square; a_0 = x
        g_l = sum of a_l^2                          goodness of a row
        L_l = (-log s(g_l(x+) - d) - log(1 - s(g_l(x-) - d))) / 2      s is the sigmoid, d the number of values of a_l
        L_l = log(1 + exp(-alpha (g_l(x+) - g_l(x-))))                  in place of it, SymBa's loss
            + peer_normalisation * mean over values of (mean of m - m)^2
                                                    m = 0.9 m + 0.1 mean of a_l(x+) over the samples
        pass on stop(a_l), of all rows
        prediction by goodness                      argmax over labels of g_2 + ... + g_l, each label in a separate row
        prediction by activities                    argmax of W_2 norm(a_2) + ... + W_l norm(a_l) of a row with 1 / J in
                                                    each value of the label; CE(W_l norm(stop(a_l)), y) trains W_l

    The first component does not count, as in the paper, except where it is alone. A wrong label is drawn from (seed,
    mini-batch, position), so it is the same on any partition and however replicas share the mini-batch.

    Pitfalls: without norm, a component reads its goodness off the length of its input and learns nothing else. The
    paper divides by the length, which leaves values near 0 in a wide layer; its widespread code divides by the root
    mean square, and so does this. A prediction by goodness takes J times the computing and the message of one row.
    Batch normalisation in f takes its statistics over all rows together, right and wrong. The label lies in the first
    values of the sample, which a convolution sees in one corner only: use linear layers. It is written as 0 and 1, so
    the values of a sample should lie in 0..1, as those of the authors do.

    Linear layers and convolutions begin with weights from N(0, 1 / inputs) and biases of 0, so that goodness begins
    near d / 2, and classifiers of activities at 0, without a bias. An imported model keeps its weights.

    Deviation, from the code of loeweX on GitHub. Its weights begin with a variance of 1 / outputs, which is the same
    between layers of one width; where the first layer has fewer inputs than outputs, its goodness begins lower. It
    passes the gradient of the goodness through every ReLU as if it were the identity; here a ReLU has its usual
    gradient, as in the paper's formulas. That costs 0.7 points on the digits at depth 3 (0.3 to 1.4 by three paired
    seeds). It trains one softmax on the activities of all depths together; here each depth
    trains a separate one, and their scores are added up, since one loss over all depths would not be local. It trains
    with SGD, the layers at 1e-3 with a weight decay of 3e-4, the classifier at 1e-2 with 3e-3, momentum 0.9, and rates
    that fall to 0 in the second half of 100 epochs; the committed spec takes Adam. SymBa's authors also add an
    intrinsic class pattern, which is left out; its cost was not measured.

    Published test error on MNIST in percent: 1.36 in the paper, 1.45 by the code of loeweX.
    arXiv 2212.13345; SymBa: arXiv 2303.08418.
    """

    sends_rows = True

    def __init__(
        self, task: NetworkFacts, *, loss: str, alpha: float, peer_normalisation: float, prediction: str
    ) -> None:
        super().__init__(task)
        self.loss = loss
        self.alpha = alpha
        self.peer_normalisation = peer_normalisation
        self.neutral = prediction == "activities"

    def component(self, index: int, f: Encoder, facts: EncoderFacts, make: MakePart) -> ForwardForwardComponent:
        classes = self.task.classes
        self._require_values(index, f, facts)

        def readout() -> OfActivities:
            features = Features(facts.output, 4, facts.pooling)
            layer = nn.Linear(features.width, classes, bias=False)
            nn.init.zeros_(layer.weight)
            return OfActivities(Readout(features, layer))

        if facts.ends is None:
            make("start", lambda: started(f))

        return ForwardForwardComponent(
            index,
            f=f,
            rows=SeveralRows(classes if index == 0 else None, neutral=self.neutral),
            head=make("head", readout) if self.neutral else None,
            peers=make("peers", lambda: MeanActivities(facts.output)) if self.peer_normalisation else None,
            classes=classes,
            alpha=self.alpha if self.loss == "symba" else None,
            peer_normalisation=self.peer_normalisation,
            optimizer=self.task.optimizer,
        )

    def _require_values(self, index: int, f: Encoder, facts: EncoderFacts) -> None:
        if not facts.input.dtype.is_floating_point or facts.takes_along or facts.gives_along:
            raise SpecError(
                "`forward_forward` writes the label over values of the sample, and texts and sequences have none",
                key=f.key,
                hint="train pictures or tables with it, or choose another method",
            )
        if index == 0 and facts.input.elements < self.task.classes:
            raise SpecError(
                f"`forward_forward` writes the label over the first {self.task.classes} values of a sample, which has "
                f"{facts.input.elements}",
                key=f.key,
                hint="choose another method",
            )

    def goes_up(self, facts: EncoderFacts, *, training: bool = True) -> dict[str, Shape]:
        rows = 2 + self.neutral if training else (1 if self.neutral else self.task.classes)
        return {"s": Shape((rows, *facts.output), facts.output.dtype)}

    def ends_route(self, index: int) -> bool:
        """Every depth is a route."""
        return True

    def infers_along(self) -> dict[str, Shape]:
        return {"score": self.route(0)}

    def compares_samples(self) -> tuple[str, str] | None:
        if not self.peer_normalisation:
            return None
        reason = "mean activities are those of each replica's share of the mini-batch"
        return reason, "method.peer_normalisation=0 leaves them out"


def started(encoder: Encoder) -> Encoder:
    """The same encoder, with new initial weights of its linear layers and convolutions: from N(0, 1 / inputs of a
    value), and biases of 0. With inputs of root mean square 1, goodness begins near half its threshold."""
    for layer in encoder.modules():
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d) and not layer.weight.is_meta:
            drawn = torch.randn(layer.weight.shape, device="cpu") / math.sqrt(layer.weight[0].numel())
            with torch.no_grad():
                layer.weight.copy_(drawn)
                if layer.bias is not None:
                    layer.bias.zero_()
    return encoder


class SeveralRows(Passage):
    """Several rows for each sample, `[N, R, ...]`, which an encoder gets as `[N * R, ...]`, each divided by its root
    mean square."""

    def __init__(self, classes: int | None, *, neutral: bool) -> None:
        """
        Args:
            classes: of the first component, which makes the rows: one for each class; None for the others.
            neutral: whether it makes one row for no class instead.
        """
        super().__init__()
        self.classes = classes
        self.neutral = neutral

    def before(self, incoming: Tensors) -> Tensors:
        s = incoming["s"]
        if self.classes is not None:
            labels = torch.eye(self.classes, dtype=s.dtype, device=s.device)
            s = marked(s, labels.mean(0, keepdim=True) if self.neutral else labels)
        return {"s": of_one_length(s.flatten(0, 1))}

    def after(self, incoming: Tensors, encoded: Tensors) -> Tensors:
        if self.classes is None:
            rows = incoming["s"].shape[1]
        else:
            rows = 1 if self.neutral else self.classes
        return {"s": encoded["s"].unflatten(0, (-1, rows))}


def marked(samples: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Each sample with each label in place of its first values: `[N, ...] -> [N, R, ...]`.

    Args:
        labels: [R, J] for all samples, or [N, R, J].
    """
    if labels.ndim == 2:
        labels = labels.expand(samples.shape[0], -1, -1)
    values = samples.flatten(1)[:, labels.shape[2] :].unsqueeze(1).expand(-1, labels.shape[1], -1)
    rows: torch.Tensor = torch.cat([labels, values], 2).unflatten(2, samples.shape[1:])
    return rows


def of_one_length(rows: torch.Tensor) -> torch.Tensor:
    """Rows `[N, ...]`, each divided by its root mean square plus 1e-8."""
    lengths = rows.flatten(1).square().mean(1).sqrt() + 1e-8
    return rows / lengths.view(-1, *[1] * (rows.ndim - 1))


class Goodness(nn.Module):
    """`[N, R, ...] -> [N, R]`: the sum of the squares of each row."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Args:
            mask: None; there is none.
        """
        return s.flatten(2).square().sum(2)


class OfActivities(nn.Module):
    """`[N, R, ...] -> [N, classes]`: class scores from the activities of the last row, which has no label."""

    def __init__(self, readout: Readout) -> None:
        super().__init__()
        self.readout = readout

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Args:
            mask: None; there is none.
        """
        scores: torch.Tensor = self.readout(of_one_length(s[:, -1]))
        return scores


class MeanActivities(nn.Module):
    """The mean of each value over the samples so far, of which later ones count more."""

    mean: torch.Tensor

    def __init__(self, output: Shape) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full(tuple(output), _FIRST_ACTIVITY, dtype=output.dtype))

    def forward(self, activities: torch.Tensor) -> torch.Tensor:
        """Take the activities `[N, ...]` of a mini-batch; return how far the means lie from their mean, squared: a
        scalar."""
        mean = _MOMENTUM * self.mean + (1 - _MOMENTUM) * activities.mean(0)
        self.mean.copy_(mean.detach())
        return (mean.mean() - mean).square().mean()


class ForwardForwardComponent(LocalComponent):
    """Encoder f, which the goodness of right and wrong rows trains, and for predictions by activities a readout `head`,
    which trains without changing it."""

    apart = ("head",)

    def __init__(
        self,
        index: int,
        *,
        f: Encoder,
        rows: SeveralRows,
        head: OfActivities | nn.Module | None,
        peers: nn.Module | None,
        classes: int,
        alpha: float | None,
        peer_normalisation: float,
        optimizer: Recipe,
    ) -> None:
        """
        Args:
            head: None for predictions by goodness.
            peers: `MeanActivities`, None where they have no weight in the loss.
            alpha: of SymBa's loss, None for the paper's.
        """
        super().__init__(index, f)
        self.rows = rows
        self.goodness = Goodness()
        self.head = head
        self.peers = peers
        self.classes = classes
        self.alpha = alpha
        self.peer_normalisation = peer_normalisation
        self.adds_up = index > 0
        self.train_with(optimizer, encoder=(f,) if head is None else (f, head))

    @property
    def passage(self) -> SeveralRows:
        return self.rows

    @property
    def turn(self) -> nn.Module:
        return self.goodness if self.head is None else self.head

    def prepared(self, incoming: Tensors) -> Tensors:
        """The first component makes a row with the label, one with a wrong label and, for `head`, one with none."""
        if self.index > 0:
            return super().prepared(incoming)
        samples, right = incoming["s"], incoming["labels"]
        wrong = (right + self.drawn(self._draw, "wrong labels")) % self.classes
        labels = functional.one_hot(torch.stack([right, wrong], 1), self.classes).to(samples.dtype)
        if self.head is not None:
            labels = torch.cat([labels, torch.full_like(labels[:, :1], 1 / self.classes)], 1)
        return {"s": of_one_length(marked(samples, labels).flatten(0, 1))}

    def _draw(self, samples: int, generator: torch.Generator) -> torch.Tensor:
        return torch.randint(1, self.classes, (samples,), generator=generator, device="cpu")

    def passed_up(self, incoming: Tensors, encoded: Tensors) -> Tensors:
        return {"s": self._by_sample(encoded["s"])}

    def _by_sample(self, s: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = s.unflatten(0, (-1, 2 if self.head is None else 3))
        return rows

    def local_losses(self, encoded: Tensors, incoming: Tensors) -> tuple[Tensors, Tensors]:
        labels, s = incoming["labels"], self._by_sample(encoded["s"])
        right, wrong = self.goodness(s)[:, :2].unbind(1)
        if self.alpha is None:
            d = s[0, 0].numel()
            goodness = (functional.softplus(d - right) + functional.softplus(wrong - d)).mean() / 2
        else:
            goodness = functional.softplus(self.alpha * (wrong - right)).mean()
        if self.peers is not None:
            goodness = goodness + self.peer_normalisation * self.peers(s[:, 0])
        losses = {"goodness": goodness}
        if self.head is not None:
            losses["cross_entropy"] = functional.cross_entropy(read(self.head, {"s": s.detach()}), labels)
        return losses, {"labels": labels}
