"""What becomes of samples in training: the augmentation `strong` of a picture, and mixup and CutMix of a mini-batch.

Random numbers come from a given generator or from the seed, never from torch's global one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from alray.config.sections.data import Mix
from alray.core.errors import DataError
from alray.core.randomness.seeds import derive_seed

_PADDING = 4  # pixels
_JITTER_CHANCE = 0.8
_GRAYSCALE_CHANCE = 0.2


def strong(image: Tensor, generator: torch.Generator) -> Tensor:
    """Pad by 4 pixels and crop, flip left to right (chance 0.5), jitter colours (0.8), make grayscale (0.2).

    The jitter multiplies brightness, contrast and saturation by a factor in 0.6..1.4 and shifts hue by -0.1..0.1, in
    random order. A picture with one channel has no colour, so only its brightness and contrast are jittered.

    Args:
        image: [1 or 3, height, width] floating point. Returns the same shape.

    Raises:
        DataError: if a value is outside 0..1.
    """
    from torchvision.transforms.v2 import functional  # imports torch's compiler, which takes seconds

    if image.min() < 0 or image.max() > 1:
        smallest, largest = float(image.min()), float(image.max())
        raise DataError(
            f"`strong` needs values from 0 to 1, but a sample has values from {smallest:.3g} to {largest:.3g}",
            key="data.augment",
            hint="make the source return values in 0..1 with a `normalisation`, or set data.augment=none",
        )
    # Every number is drawn, used or not, so that one choice does not change the numbers of the next.
    top, left = torch.randint(2 * _PADDING + 1, (2,), generator=generator).tolist()
    flip, jitter, grayscale = torch.rand(3, generator=generator).tolist()
    brightness, contrast, saturation = torch.empty(3).uniform_(0.6, 1.4, generator=generator).tolist()
    hue = torch.empty(1).uniform_(-0.1, 0.1, generator=generator).item()
    order = torch.randperm(4, generator=generator).tolist()

    height, width = image.shape[-2:]
    image = functional.crop(functional.pad(image, [_PADDING]), top, left, height, width)
    if flip < 0.5:
        image = functional.horizontal_flip(image)
    coloured = image.shape[0] == 3
    if jitter < _JITTER_CHANCE:
        for change in order:
            if change == 0:
                image = functional.adjust_brightness(image, brightness)
            elif change == 1:
                image = functional.adjust_contrast(image, contrast)
            elif change == 2 and coloured:
                image = functional.adjust_saturation(image, saturation)
            elif change == 3 and coloured:
                image = functional.adjust_hue(image, hue)
    if coloured and grayscale < _GRAYSCALE_CHANCE:
        image = functional.rgb_to_grayscale(image, num_output_channels=3)
    return image


@dataclass(frozen=True)
class Mixture:
    """How the samples of one mini-batch are mixed: each with another one, and so are their labels.

        mixup    x = λ x_i + (1 - λ) x_j                             (Zhang et al., ICLR 2018, section 2)
        CutMix   x = x_i, with a rectangle of x_j pasted into it     (Yun et al., ICCV 2019, section 3.1)
        both     y = λ y_i + (1 - λ) y_j, with one-hot y_i and y_j

    λ is drawn from Beta(α, α) for each mini-batch. The rectangle covers the share 1 - λ of a picture; where it is cut
    off at the edge, λ follows from what is left of it. Sample j is the neighbour of sample i in the mini-batch.

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
        rows = [one_hot(labels, classes).to(dtype) for labels in (own, others)]
        return rows[0] * self.share + rows[1] * (1.0 - self.share)


def _around(centre: int, half: int, size: int) -> slice:
    """`half` indices to each side of a centre, without those outside 0..size."""
    return slice(max(0, centre - half), min(size, centre + half))
