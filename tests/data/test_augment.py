"""The strong augmentation: a function of the picture and the generator."""

from __future__ import annotations

import pytest
import torch

from alray.core.errors import DataError
from alray.core.randomness.generators import generator
from alray.data.augment import strong


def test_the_same_generator_gives_the_same_picture_and_the_original_is_kept() -> None:
    image = torch.rand(3, 12, 10, generator=generator(0))
    before = image.clone()
    first, again, other = (strong(image, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(image, before)
    assert first.shape == image.shape
    assert float(first.min()) >= 0.0
    assert float(first.max()) <= 1.0


def test_it_moves_flips_and_loses_colour_as_often_as_it_says() -> None:
    ramp = torch.linspace(0.2, 0.8, 16).expand(16, 16)
    image = torch.stack([ramp, ramp * 0.5, ramp * 0.2])
    results = [strong(image, generator(0, index)) for index in range(400)]
    gray = sum(bool((r[0] - r[1]).abs().max() < 1e-6) for r in results) / 400
    assert 0.14 < gray < 0.26
    middle = [r[:, 5:11, 5:11].mean(dim=(0, 1)) for r in results]  # never reached by the padding
    flipped = sum(bool(row[0] > row[-1]) for row in middle) / 400
    assert 0.42 < flipped < 0.58
    flat = [(r[:, [0, -1]] - r[:, [0, -1], :1]).abs().amax(dim=(0, 2)).min() < 1e-6 for r in results]
    assert 0.8 < sum(map(bool, flat)) / 400 < 0.97  # 8 of 9 offsets bring padding into the first or last row


def test_a_picture_of_one_channel_stays_one() -> None:
    image = torch.rand(1, 8, 8, generator=generator(0))
    results = {tuple(strong(image, generator(seed)).flatten().tolist()) for seed in range(5)}
    assert len(results) == 5
    assert strong(image, generator(0)).shape == (1, 8, 8)


def test_values_outside_0_to_1_are_refused() -> None:
    with pytest.raises(DataError) as caught:
        strong(torch.tensor([-1.0, 2.0]).expand(3, 2, 2), generator(0))
    assert str(caught.value).startswith("data.augment: `strong` needs values from 0 to 1, ")
