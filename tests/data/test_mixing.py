"""mixup and CutMix, beside a plain loop, and as a function of seed, epoch and position."""

from __future__ import annotations

import math
from random import Random

import numpy
import pytest
import torch

from alray.config.sections.data import Mix
from alray.core.randomness.seeds import derive_seed
from alray.data.augment import Mixture
from alray.data.batches import TrainBatches
from alray.data.dataset import Dataset
from alray.data.opening import open_data
from tests.data import sections as spec

BATCH = 8


def synthetic(**mix: float) -> Dataset:
    section = spec.Synthetic(
        source="synthetic", shape=(2, 6, 5), classes=3, samples=40, batch_size=BATCH, mix=Mix(**mix) if mix else None
    )
    return open_data(section, seed=1, load=lambda reference: pytest.fail(reference))


def batches(data: Dataset, **options: object) -> list:
    given = {"seed": 1, "start_step": 0, "end_step": 9, "workers": 0, **options}
    with TrainBatches(data, **given) as found:
        return list(found)


@pytest.mark.parametrize("mix", [{"mixup": 0.4}, {"cutmix": 1.0}, {"mixup": 0.4, "cutmix": 1.0}])
def test_as_a_plain_loop_over_the_samples(mix) -> None:
    """The loop reads unmixed mini-batches, and mixes value by value."""
    plain, steps = batches(synthetic()), synthetic().steps_per_epoch
    for before, after in zip(plain, batches(synthetic(**mix)), strict=True):
        epoch, position = divmod(before.step, steps)
        draws = Random(derive_seed(1, "mix", epoch, position))
        name = draws.choice(list(mix))
        share = draws.betavariate(mix[name], mix[name])
        samples, labels = before.samples.numpy(), numpy.eye(3)[before.labels.numpy()]
        expected = numpy.empty_like(samples)
        inside = numpy.zeros((6, 5), dtype=bool)
        if name == "cutmix":
            half = 0.5 * math.sqrt(1 - share)
            row, column = draws.randrange(6), draws.randrange(5)
            for i in range(row - int(half * 6), row + int(half * 6)):
                for j in range(column - int(half * 5), column + int(half * 5)):
                    if 0 <= i < 6 and 0 <= j < 5:
                        inside[i, j] = True
            share = 1 - inside.mean()
        for index in range(BATCH):
            own, other = samples[index], samples[index - 1]
            expected[index] = numpy.where(inside, other, own) if name == "cutmix" else share * own + (1 - share) * other
        assert numpy.allclose(after.samples.numpy(), expected, atol=1e-6)
        shares = share * labels + (1 - share) * numpy.roll(labels, 1, axis=0)
        assert numpy.allclose(after.labels.numpy(), shares, atol=1e-6) and after.labels.dtype == torch.float32


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_the_share_has_the_moments_of_its_distribution(alpha) -> None:
    mix = Mix(mixup=alpha)
    drawn = [Mixture.drawn(mix, (1, 4, 4), seed=3, epoch=0, position=each).share for each in range(4000)]
    deviation = 0.5 / math.sqrt(2 * alpha + 1)  # of Beta(a, a)
    assert numpy.mean(drawn) == pytest.approx(0.5, abs=4 * deviation / math.sqrt(4000))
    assert numpy.std(drawn) == pytest.approx(deviation, rel=0.05)


@pytest.mark.full
def test_any_start_and_any_number_of_workers_give_the_same_mini_batches() -> None:
    data = synthetic(mixup=0.4, cutmix=1.0)
    whole = batches(data)
    for start, workers in ((4, 0), (0, 1)):
        for left, right in zip(whole[start:], batches(data, start_step=start, workers=workers), strict=True):
            assert torch.equal(left.samples, right.samples) and torch.equal(left.labels, right.labels)


@pytest.mark.parametrize("shares", [(4, 4), (1, 7), (3, 2, 3)])
def test_replicas_get_the_rows_of_the_whole_mini_batch(shares) -> None:
    data = synthetic(mixup=0.4, cutmix=1.0)
    parts = [batches(data, shares=shares, replica=replica) for replica in range(len(shares))]
    for whole, *rows in zip(batches(data), *parts, strict=True):
        assert torch.equal(whole.samples, torch.cat([part.samples for part in rows]))
        assert torch.equal(whole.labels, torch.cat([part.labels for part in rows]))
