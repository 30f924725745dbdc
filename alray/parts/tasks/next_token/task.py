"""The next token: each position of a window of tokens has the one after it as its label."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from alray.data.tokens import END
from alray.models.task import Label, LearningTask, Tally


@dataclass(frozen=True)
class TokenPrediction:
    """The most probable next token after a text.

    Attributes:
        token: its text.
        score: its probability, in 0..1.
    """

    input: str
    token: str
    token_index: int
    score: float
    depth: int

    def __str__(self) -> str:
        return f"{self.token!r} ({self.score:.4f})"


class NextTokenTask(LearningTask):
    """Cross-entropy of the scores of all tokens, the mean over positions in nats. A label is the number of a token for
    each position, and so is t_0."""

    loss_name = "cross_entropy"
    by_position = True

    @property
    def label_shape(self) -> tuple[int, ...]:
        return self.sample

    @property
    def label_dtype(self) -> torch.dtype:
        return torch.int64

    @property
    def readout_shape(self) -> tuple[int, ...]:
        return (*self.sample, self.width)

    def loss(self, scores: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
        assert label_smoothing == 0.0, "refused for this task"
        return functional.cross_entropy(scores.flatten(0, 1), target.flatten())

    def encoded(self, labels: Tensor, dtype: torch.dtype) -> Tensor:
        return labels

    def first_label_encoder(self, dim: int) -> nn.Module:
        """A vector for each token: a linear layer on one-hot rows, without making these."""
        return nn.Embedding(self.width, dim)

    @property
    def measured_shape(self) -> tuple[int, ...]:
        return self.sample

    def measured(self, scores: Tensor, labels: Tensor) -> Tensor:
        """For each position the cross-entropy in nats, [N, positions] in the type of the scores; for `top_1`, 1 where
        the label has the highest score, else 0. It is not a number where a score is not."""
        tokens, targets = scores.flatten(0, 1), labels.to(scores.device).flatten()
        if self.metric.name == "top_1":
            predicted = tokens.argmax(1)
            highest = tokens.gather(1, predicted.unsqueeze(1)).squeeze(1)  # not a number, if one of them is not
            found = torch.where(highest.isnan(), highest, (predicted == targets).to(scores.dtype))
        else:
            found = functional.cross_entropy(tokens, targets, reduction="none")
        return found.view(labels.shape)

    def tally(self) -> Tally:
        return _OverPositions(self.metric.name)

    def chance(self, labels: Tensor | None) -> float | None:
        """The metric of the share of each token, in a text of at most a million tokens."""
        if labels is None:
            return None
        tokens = labels[:_MOST_TOKENS].to(torch.int64)
        counts = tokens.bincount(minlength=self.width)
        best = self.metric.name == "top_1"
        tally = self.tally()
        tally.take(tokens == counts.argmax() if best else -(counts / len(tokens)).log()[tokens], tokens)
        return tally.value()

    def read(self, label: object) -> Label | None:
        return label if isinstance(label, Tensor) and tuple(label.shape) == self.label_shape else None

    def collated(self, labels: Sequence[Label]) -> Tensor:
        return torch.stack([torch.as_tensor(label, dtype=torch.int64) for label in labels])

    def fits(self, labels: Tensor) -> Tensor:
        if labels.dtype != torch.int64 or labels.shape[1:] != self.label_shape:
            return torch.zeros(len(labels), dtype=torch.bool)
        return ((labels >= 0) & (labels < self.width)).all(1)

    @property
    def wants(self) -> str:
        return f"give the number of a token, from 0 to {self.width - 1}, for each of {self.label_shape[0]} positions"

    def prediction(self, given: str, scores: Tensor, names: Sequence[str], depth: int) -> TokenPrediction:
        shares = self.shares(scores[-1])
        best = int(shares.argmax())
        return TokenPrediction(given, names[best], best, float(shares[best]), depth)


class _OverPositions(Tally):
    """The mean over all positions of what `NextTokenTask.measured` gives, in the unit of a metric.

    Bits per byte are the sum over all positions, in bits, divided by the number of bytes of the text. The end of a
    document has to be predicted, so its bits count, but it is no byte of the text. They are not defined for a set
    without any byte.
    """

    def __init__(self, metric: str) -> None:
        super().__init__()
        self._metric = metric
        self._total = 0.0
        self._positions = 0
        self._ends = 0

    def _take(self, scores: Tensor, labels: Tensor) -> None:
        self._total += float(scores.flatten().double().sum())
        self._positions += labels.numel()
        self._ends += int((labels == END).sum())

    def value(self) -> float | None:
        if self._metric == "bits_per_byte":
            size = self._positions - self._ends  # a token that is no end is a byte
            return self._total / math.log(2) / size if size else None
        mean = self._total / self._positions
        if self._metric != "perplexity":
            return mean
        return math.inf if mean > _LARGEST else math.exp(mean)


_MOST_TOKENS = 1_000_000
_LARGEST = math.log(sys.float_info.max)
"""Nats whose exponential is still a number."""
