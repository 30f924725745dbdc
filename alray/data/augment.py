"""The augmentation `strong` for pictures. It draws from a given generator, never from torch's global one."""

from __future__ import annotations

import torch
from torch import Tensor

from alray.core.errors import DataError

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
