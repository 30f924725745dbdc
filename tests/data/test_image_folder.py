"""Pictures in folders, one subfolder per class."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from alray.data.batches import EvaluationBatches
from alray.data.dataset import Dataset, check_pictures, open_data
from alray.errors import DataError
from alray.spec import data as spec


def no_code(reference: str) -> type:
    raise AssertionError(f"nothing to load: {reference}")


def opened(folder: Path, *, test: bool = True, **keys: Any) -> Dataset:
    section = spec.ImageFolder(
        source="image_folder",
        train=folder / "train",
        test=folder / "test" if test else None,
        **{"image_size": 6, "batch_size": 4, "validation_fraction": 0.0, **keys},
    )
    return open_data(section, seed=0, load=no_code)


def test_classes_and_samples(image_folder: Path) -> None:
    data = opened(image_folder)
    assert data.classes == ("cat", "dog")
    assert data.sample_shape == (3, 6, 6)
    labels = [label for batch in EvaluationBatches(data, "train") for label in batch.labels.tolist()]
    assert labels == [0] * 6 + [1] * 6
    assert data.test is not None
    assert len(data.test) == 4
    samples = data.train.take(range(12))[0]
    assert float(samples.min()) < -0.2
    assert float(samples.max()) > 0.2
    assert float(samples.abs().max()) <= 1.0


def test_a_picture_to_predict_is_prepared_as_the_training_data_is(image_folder: Path) -> None:
    data = opened(image_folder)
    assert torch.equal(data.read_image(image_folder / "train/cat/0.jpg"), data.train[0][0])


def test_without_a_test_folder(image_folder: Path) -> None:
    data = opened(image_folder, test=False)
    assert data.splits["test"] is None
    with pytest.raises(DataError) as caught:
        EvaluationBatches(data, "test")
    assert str(caught.value).startswith("data: there is no test split; ")


def test_hidden_and_other_files_are_passed_over(image_folder: Path) -> None:
    (image_folder / "train/cat/notes.txt").write_text("x", encoding="utf-8")
    (image_folder / "train/cat/._0.jpg").write_bytes(b"x")
    (image_folder / "train/.thumbnails").mkdir()
    assert opened(image_folder).num_train == 12


def test_a_validation_set_of_its_own(image_folder: Path) -> None:
    """The training set stays whole."""
    shutil.copytree(image_folder / "test", image_folder / "valid")
    section = {"source": "image_folder", "train": image_folder / "train", "image_size": 6, "batch_size": 4}
    data = open_data(spec.ImageFolder(**section, validation=image_folder / "valid"), seed=0, load=no_code)
    assert (data.num_train, len(data.validation or ()), data.test) == (12, 4, None)
    (batch,) = EvaluationBatches(data, "validation")
    assert batch.labels.tolist() == [0, 0, 1, 1]
    assert torch.equal(batch.samples[0], data.read_image(image_folder / "valid/cat/0.jpg"))
    (image_folder / "valid/cat/1.png").write_bytes(b"x")
    with pytest.raises(DataError, match="not a picture"):
        check_pictures(spec.ImageFolder(**section, validation=image_folder / "valid"), no_code)


def test_height_and_width_of_their_own(image_folder: Path) -> None:
    data = opened(image_folder, image_size=[4, 9])
    assert data.sample_shape == data.train[0][0].shape == data.read_image(image_folder / "train/cat/0.jpg").shape
    assert data.sample_shape == (3, 4, 9)


def test_given_means_and_deviations(image_folder: Path) -> None:
    mean, deviation = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 1.0, 2.0])
    data = opened(image_folder, normalise={"mean": mean.tolist(), "deviation": deviation.tolist()})
    values = (opened(image_folder).train[3][0] + 1) / 2
    assert torch.allclose(data.train[3][0], (values - mean[:, None, None]) / deviation[:, None, None], atol=1e-6)
    assert torch.equal(data.read_image(image_folder / "train/cat/3.png"), data.train[3][0])
    with pytest.raises(DataError, match=r"data.normalise: .*1 means and 1 standard deviations"):
        opened(image_folder, normalise={"mean": [0.5], "deviation": [0.5]})
