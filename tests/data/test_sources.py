"""The sources that need no files: digits and synthetic."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from alray.core.errors import DataError
from alray.data.opening import open_data
from alray.parts.sources.digits.source import DigitsSource
from alray.parts.sources.synthetic.source import SyntheticSource
from tests.data import sections as spec
from tests.data.predicted import inputs

FIRST_TEST_LABELS = [1, 4, 8, 6, 5, 9, 9, 1, 3, 2, 2, 2]


def test_digits_has_a_fixed_stratified_test_split() -> None:
    train, test = DigitsSource().open("train"), DigitsSource().open("test")
    assert (len(train), len(test)) == (spec.Digits(source="digits").training_set, 360) == (1437, 360)
    counts = torch.bincount(test.labels, minlength=10)
    whole = torch.bincount(torch.cat([train.labels, test.labels]), minlength=10)
    assert ((counts - whole * 360 / 1797).abs() < 1).all()
    # These very samples: figures of two versions of alray are comparable.
    assert test.labels[:12].tolist() == FIRST_TEST_LABELS
    assert train.samples.shape == (1437, 1, 8, 8)
    assert (float(train.samples.min()), float(train.samples.max())) == (0.0, 1.0)


def test_digits_are_those_of_scikit_learn_in_its_split() -> None:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    split = train_test_split(range(1797), test_size=360, random_state=0, shuffle=True, stratify=bunch.target)
    for name, chosen in zip(("train", "test"), map(sorted, split), strict=True):
        opened = DigitsSource().open(name)
        assert torch.equal(opened.samples[:, 0], torch.from_numpy(bunch.images[chosen]).to(torch.float32) / 16)
        assert torch.equal(opened.labels, torch.from_numpy(bunch.target[chosen]))


def test_a_picture_of_a_digit_is_prepared_as_the_training_data_is(tmp_path: Path) -> None:
    data = open_data(spec.Digits(source="digits", image_size=16, validation_fraction=0.0), seed=0, load=spec.no_code)
    raw = DigitsSource().open("train").samples[5]
    pixels = (raw[0] * 255).round().to(torch.uint8).numpy()
    Image.fromarray(pixels).save(tmp_path / "digit.png")
    got = next(inputs(data, str(tmp_path / "digit.png")))
    assert got.shape == (1, 16, 16)
    assert torch.allclose(got, data.train[5][0], atol=0.01)


def test_synthetic_samples_do_not_depend_on_their_number() -> None:
    few, many = (SyntheticSource(shape=(2, 5, 5), classes=3, samples=n).open("train") for n in (300, 700))
    assert torch.equal(few.samples, many.samples[:300])
    assert torch.equal(few.labels, many.labels[:300])
    assert (len(few), len(many)) == (300, 700)


@pytest.mark.parametrize("shape", [(3, 8, 8), (20,)])
def test_synthetic_classes_can_be_told_apart(shape: tuple[int, ...]) -> None:
    source = SyntheticSource(shape=shape, classes=4, samples=400)
    train, test = source.open("train"), source.open("test")
    assert len(test) == 80
    assert not torch.equal(train.samples[:80], test.samples)
    means = torch.stack([train.samples[train.labels == label].mean(0).flatten() for label in range(4)])
    nearest = torch.cdist(test.samples.flatten(1), means).argmin(1)
    assert (nearest == test.labels).float().mean() > 0.9
    assert float(train.samples.min()) >= 0.0
    assert float(train.samples.max()) <= 1.0


def test_image_size_takes_the_place_of_height_and_width() -> None:
    source = SyntheticSource(shape=(3, 32, 32), classes=2, samples=4, size=(8, 8))
    assert source.open("train").samples.shape == (4, 3, 8, 8)


def test_a_picture_for_samples_that_are_not_pictures(tmp_path: Path) -> None:
    Image.fromarray(numpy.zeros((4, 4), numpy.uint8)).save(tmp_path / "a.png")
    data = open_data(
        spec.Synthetic(source="synthetic", shape=(20,), classes=2, samples=100, batch_size=4), seed=0, load=spec.no_code
    )
    with pytest.raises(DataError) as caught:
        next(inputs(data, str(tmp_path / "a.png")))
    assert str(caught.value).startswith(f"{tmp_path / 'a.png'}: a picture cannot be read as a sample of shape (20,); ")
