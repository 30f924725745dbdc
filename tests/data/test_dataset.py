"""From a `data` section to splits: how they are divided, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from alray.core.errors import DataError
from alray.data import split
from alray.data.dataset import Dataset
from alray.data.hashes import hash_of_set
from alray.data.opening import open_data
from alray.data.source import Normalisation, TensorSet
from tests.data import sections as spec


def numbered(seed: int = 0, **keys: Any) -> Dataset:
    """100 samples whose only value is their index."""

    class Numbered:
        classes = ("even", "odd")

        def open(self, split: str) -> TensorSet:
            return TensorSet(torch.arange(100.0).unsqueeze(1), torch.arange(100) % 2)

    section = spec.OwnData(**{"source": "python:here.Numbered", "batch_size": 4, **keys})
    return open_data(section, seed=seed, load=lambda reference: Numbered)


def own(samples: Sequence[Any], *, normalisation: Any = None, **keys: Any) -> Dataset:
    """A source of 2 classes with these (sample, label) in both sets."""

    class Own:
        classes = ("a", "b")

        def __init__(self) -> None:
            self.normalisation = normalisation

        def open(self, split: str) -> Sequence[Any]:
            return samples

    section = spec.OwnData(**{"source": "python:here.Own", "batch_size": 2, "validation_fraction": 0.0, **keys})
    return open_data(section, seed=0, load=lambda reference: Own)


def indices(data: Dataset, name: str) -> list[int]:
    split = data.splits[name]
    assert split is not None
    return [int(value) for value in split.take(range(len(split)))[0].flatten()]


def test_validation_is_a_seeded_part_of_the_training_set() -> None:
    data = numbered()
    train, validation = indices(data, "train"), indices(data, "validation")
    assert (len(train), len(validation)) == (90, 10)
    assert sorted(train + validation) == list(range(100))
    assert train == sorted(train)
    assert indices(numbered(), "validation") == validation
    assert indices(numbered(seed=1), "validation") != validation
    assert indices(data, "test") == list(range(100))


def test_train_fraction_keeps_part_of_what_is_left() -> None:
    whole, half, tenth = (numbered(train_fraction=fraction) for fraction in (1.0, 0.5, 0.1))
    assert [len(data.train) for data in (whole, half, tenth)] == [90, 45, 9]
    assert set(indices(tenth, "train")) < set(indices(half, "train")) < set(indices(whole, "train"))
    assert indices(half, "validation") == indices(whole, "validation")


def test_without_validation() -> None:
    data = numbered(validation_fraction=0.0)
    assert data.splits["validation"] is None
    assert len(data.train) == 100


def test_steps_per_epoch() -> None:
    assert numbered(batch_size=8).steps_per_epoch == 11
    assert numbered(batch_size=8, last_batch="keep").steps_per_epoch == 12
    assert numbered(batch_size=9).steps_per_epoch == 10
    assert numbered(batch_size=9, last_batch="keep").steps_per_epoch == 10
    assert numbered(batch_size=1000, last_batch="keep").steps_per_epoch == 1


def test_what_the_data_says_of_itself() -> None:
    section = spec.Digits(source="digits", image_size=16)
    data = open_data(section, seed=0, load=spec.no_code)
    assert data.sample_shape == (1, 16, 16)
    assert data.sample_shape.dtype == torch.float32
    assert data.classes == tuple("0123456789")
    assert len(data.classes) == 10
    assert {name: len(split or ()) for name, split in data.splits.items()} == {
        "train": 1293,
        "validation": 144,
        "test": 360,
    }
    sample, label = data.train[0]
    assert sample.shape == (1, 16, 16)
    assert isinstance(label, int)


def test_uint8_is_scaled_and_normalised_and_floats_are_taken_as_they_are() -> None:
    pixels = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1)
    plain = own([(pixels, 0)] * 2)
    assert plain.train[0][0].flatten().tolist() == [0.0, 1.0]
    normalised = own([(pixels, 0)] * 2, normalisation=Normalisation((0.5, 0.5), (0.5, 0.25)))
    assert normalised.train[0][0].flatten().tolist() == [-1.0, 2.0]
    floats = own([(torch.tensor([-3.0, 7.5], dtype=torch.float64), 1)] * 2)
    assert floats.train[0][0].tolist() == [-3.0, 7.5]
    assert floats.train[0][0].dtype == torch.float32


@pytest.mark.parametrize(
    ("scale", "mean", "deviation", "told"),
    [
        (1, 0.485, 0.229, False),
        (1, 123.7, 58.4, True),
        (1, 123.7, 0.229, True),
        (255, 0.485, 0.229, True),
        (255, 123.7, 58.4, False),
    ],
)
def test_a_normalisation_of_another_scale_is_told(scale: int, mean: float, deviation: float, told: bool) -> None:
    """In the spec and of a user's class, of pictures and of rows of numbers."""
    generator = torch.Generator().manual_seed(0)
    for shape in (3, 4, 4), (3,):
        samples = [(scale * torch.rand(shape, generator=generator), 0) for _ in range(20)]
        in_spec = own(samples, normalise={"mean": [mean] * 3, "deviation": [deviation] * 3})
        of_class = own(samples, normalisation=Normalisation((mean,) * 3, (deviation,) * 3))
        assert ["another scale" in line for line in in_spec.told()] == [True] * told
        assert ["another scale" in line for line in of_class.told()] == [True] * told


@pytest.mark.parametrize("largest", [0, 1 << 28], ids=["each mini-batch", "all at once"])
def test_pictures_in_memory_have_the_bits_of_those_that_are_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr(split, "_PREPARED_BYTES", largest)
    pictures = torch.randint(256, (40, 3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    keys: dict[str, Any] = {"normalisation": Normalisation((0.41, 0.5, 0.3), (0.21, 0.3, 0.25)), "batch_size": 8}
    whole = own(TensorSet(pictures, torch.zeros(40, dtype=torch.int64)), **keys)  # type: ignore[arg-type]
    one_by_one = own([(picture, 0) for picture in pictures], **keys)
    assert torch.equal(whole.train.take([3, 39, 0])[0], one_by_one.train.take([3, 39, 0])[0])


def test_a_user_may_change_a_set_before_the_next_run() -> None:
    held = TensorSet(torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64))
    assert own(held).train.take([0])[0].tolist() == [[0.0, 0.0, 0.0]]  # type: ignore[arg-type]
    held.samples.add_(1)
    assert own(held).train.take([0])[0].tolist() == [[1.0, 1.0, 1.0]]  # type: ignore[arg-type]


def test_image_size_resizes_the_samples_of_a_users_source() -> None:
    data = own([(torch.rand(3, 5, 7), 0)] * 2, image_size=4)
    assert data.sample_shape == (3, 4, 4)
    assert data.train.take([0, 1])[0].shape == (2, 3, 4, 4)


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (torch.rand(5), "data.image_size: samples of shape [5] are not [channels, height, width]; "),
        ("a text", "data: sample 0 of split `train` is of type str, not a torch tensor; set data.text"),
    ],
)
def test_only_pictures_are_resized(sample: object, said: str) -> None:
    with pytest.raises(DataError) as caught:
        own([(sample, 0)] * 2, image_size=4)  # type: ignore[list-item]
    assert str(caught.value).startswith(said)


def test_a_negative_position_counts_from_the_end_and_one_beyond_is_an_error() -> None:
    data = numbered(validation_fraction=0.0)
    assert data.train[-1][0].item() == 99.0
    with pytest.raises(IndexError):
        data.train[100]


def test_a_bad_sample_in_memory_is_named_by_its_place_in_the_source() -> None:
    labels = torch.zeros(10, dtype=torch.int64)
    labels[7] = 5
    data = own(TensorSet(torch.zeros(10, 3), labels), batch_size=4)  # type: ignore[arg-type]
    with pytest.raises(DataError) as caught:
        data.train.take([2, 7, 9])
    assert str(caught.value).startswith("data: sample 7 of split `train` has label 5, ")


def test_labels_in_memory_that_do_not_fit() -> None:
    with pytest.raises(DataError) as caught:
        TensorSet(torch.zeros(4, 3), torch.zeros(5, dtype=torch.int64))
    assert caught.value.problems[0].key == "data"


def test_each_pixel_in_memory_tells_data_apart() -> None:
    pictures, labels = torch.zeros(3000, 1, 2, 2, dtype=torch.uint8), torch.zeros(3000, dtype=torch.int64)
    before = hash_of_set(TensorSet(pictures, labels))
    pictures[1234, 0, 1, 1] = 1
    assert hash_of_set(TensorSet(pictures, labels)) != before


def test_samples_come_in_default_strides_whatever_the_source_holds() -> None:
    odd = torch.rand(4, 1, 1, 3).permute(0, 3, 1, 2)
    assert odd.is_contiguous()
    assert odd.stride() != (3, 1, 1, 1)
    data = own(TensorSet(odd, torch.zeros(4, dtype=torch.int64)))  # type: ignore[arg-type]
    assert data.train.take([0, 1, 2])[0].stride() == (3, 1, 1, 1)
