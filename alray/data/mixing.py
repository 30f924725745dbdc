"""mixup and CutMix: each sample of a mini-batch is mixed with another one, and so are their labels.

    mixup    x = λ x_i + (1 - λ) x_j                             (Zhang et al., ICLR 2018, section 2)
    CutMix   x = x_i, with a rectangle of x_j pasted into it     (Yun et al., ICCV 2019, section 3.1)
    both     y = λ y_i + (1 - λ) y_j, with one-hot y_i and y_j

λ is drawn from Beta(α, α) for each mini-batch. The rectangle covers the share 1 - λ of a picture; where it is cut off
at the edge, λ follows from what is left of it. Sample j is the neighbour of sample i in the mini-batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor
from torch.nn import functional

from alray.config.sections.data import Mix
from alray.core.randomness.seeds import derive_seed


@dataclass(frozen=True)
class Mixture:
    """How the samples of one mini-batch are mixed.

    Attributes:
        share: λ, the share of a sample and of its label, in 0..1.
        box: rows and columns (first, one past the last) that come from the neighbour; None: all values are mixed.
    """

    share: float
    box: tuple[slice, slice] | None = None

    @classmethod
    def drawn(cls, mix: Mix, shape: tuple[int, ...], *, seed: int, epoch: int, position: int) -> Mixture:
        """The mixture of mini-batch `position` of an epoch, for samples of this shape.

        With mixup and CutMix, each of them is drawn with a chance of one half.
        """
        draws = Random(derive_seed(seed, "mix", epoch, position))
        alphas = [(mix.mixup, False), (mix.cutmix, True)]
        alpha, cuts = draws.choice([(alpha, cuts) for alpha, cuts in alphas if alpha is not None])
        share = draws.betavariate(alpha, alpha)
        if not cuts:
            return cls(share)
        _, height, width = shape
        half = math.sqrt(1.0 - share) / 2
        rows = _around(draws.randrange(height), int(half * height), height)
        columns = _around(draws.randrange(width), int(half * width), width)
        covered = (rows.stop - rows.start) * (columns.stop - columns.start)
        return cls(1.0 - covered / (height * width), (rows, columns))

    def samples(self, own: Tensor, others: Tensor) -> Tensor:
        """Mix samples `[N, ...]` with their neighbours."""
        if self.box is None:
            return own * self.share + others * (1.0 - self.share)
        mixed = own.clone()
        rows, columns = self.box
        mixed[:, :, rows, columns] = others[:, :, rows, columns]
        return mixed

    def labels(self, own: Tensor, others: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
        """The shares of the classes `[N, classes]` of this type, from class numbers `[N]`."""
        one_hot = [functional.one_hot(labels, classes).to(dtype) for labels in (own, others)]
        return one_hot[0] * self.share + one_hot[1] * (1.0 - self.share)


def _around(centre: int, half: int, size: int) -> slice:
    """`half` indices to each side of a centre, without those outside 0..size."""
    return slice(max(0, centre - half), min(size, centre + half))
