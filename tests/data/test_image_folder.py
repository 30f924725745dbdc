"""Pictures in folders, one subfolder per class."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from alray.data.batches import EvaluationBatches
from alray.data.dataset import Dataset, open_data
from alray.errors import DataError
from alray.spec import data as spec


def no_code(reference: str) -> type:
    raise AssertionError(f"nothing to load: {reference}")


def opened(folder: Path, *, test: bool = True) -> Dataset:
    section = spec.ImageFolder(
        source="image_folder",
        train=folder / "train",
        test=folder / "test" if test else None,
        image_size=6,
        batch_size=4,
        validation_fraction=0.0,
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
