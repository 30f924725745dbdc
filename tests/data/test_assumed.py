"""Plans without data: what is taken for them, and when the data decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from alray.core.errors import DataError, DataMissing
from alray.data.batches import TrainBatches
from alray.data.dataset import Dataset
from alray.data.opening import open_data
from tests.data import sections as spec


def no_code(reference: str) -> type:
    raise AssertionError(f"nothing is loaded for a plan: {reference}")


def planned(section: spec.DataSection, *, for_plan: bool = True) -> Dataset:
    return open_data(section, seed=0, load=no_code, for_plan=for_plan)


def cifar(root: Path, **keys: Any) -> spec.Torchvision:
    return spec.Torchvision(source="torchvision", dataset="CIFAR100", root=root, download=True, **keys)


def texts(root: Path, **keys: Any) -> spec.TextCsv:
    return spec.TextCsv(source="text_csv", train=root / "train.csv", batch_size=8, **keys)


def pictures(root: Path, **keys: Any) -> spec.ImageFolder:
    return spec.ImageFolder(source="image_folder", train=root / "train", image_size=6, batch_size=4, **keys)


def first(data: Dataset) -> Any:
    with TrainBatches(data, seed=0, start_step=0, end_step=1, workers=0) as batches:
        return next(batches)


def test_the_kind_of_a_source_says_its_sizes(tmp_path: Path) -> None:
    """No download: there is nothing in the folder afterwards."""
    data = planned(cifar(tmp_path, batch_size=128, image_size=16))
    assert data.assumed is not None and "50,000 samples of shape [3, 16, 16] in 100 classes" in data.assumed
    assert (len(data.train), len(data.validation or ()), len(data.test or ())) == (45_000, 5_000, 10_000)
    assert (data.sample_shape, len(data.classes), data.steps_per_epoch) == ((3, 16, 16), 100, 351)
    assert first(data).samples.shape == (128, 3, 16, 16)
    assert not list(tmp_path.iterdir())


def test_the_spec_may_say_the_sizes_of_pictures(tmp_path: Path) -> None:
    data = planned(pictures(tmp_path, assume=spec.Assume(classes=5, samples=40, test_samples=3)))
    assert (len(data.train), len(data.test or ()), len(data.classes), data.sample_shape) == (36, 3, 5, (3, 6, 6))
    assert "data.assume" in str(data.assumed)


def test_the_spec_may_say_the_sizes_of_documents(tmp_path: Path) -> None:
    text = spec.Text(max_tokens=12, vocabulary_size=50)
    data = planned(texts(tmp_path, text=text, assume=spec.Assume(classes=4, samples=100)))
    assert (data.sample_shape, data.sample_shape.dtype, len(data.sample_shape.words or ())) == ((12,), torch.int64, 50)
    batch = first(data)
    assert batch.samples.shape == (8, 12) and int(batch.samples.max()) < 50
    assert batch.mask is not None and bool(batch.mask.all())
    smaller = planned(texts(tmp_path, text=text, assume=spec.Assume(classes=4, samples=100, vocabulary_size=20)))
    assert len(smaller.sample_shape.words or ()) == 20


def test_a_users_source_is_not_loaded() -> None:
    assume = spec.Assume(shape=(7,), classes=2, samples=64)
    data = planned(spec.OwnData(source="python:nowhere.Data", batch_size=8, assume=assume))
    assert (data.sample_shape, len(data.classes), data.num_samples) == ((7,), 2, 64)


@pytest.mark.parametrize(
    ("assume", "keys"),
    [(None, "{classes: ..., samples: ...}"), (spec.Assume(samples=9), "{classes: ...}")],
)
def test_what_lacks_for_a_plan_is_said(tmp_path: Path, assume: spec.Assume | None, keys: str) -> None:
    with pytest.raises(DataMissing) as caught:
        planned(texts(tmp_path, assume=assume))
    assert f"data.assume: {keys}" in str(caught.value)


def test_data_that_are_there_decide(image_folder: Path) -> None:
    assumed = spec.Assume(classes=2, samples=13)
    data = planned(pictures(image_folder, assume=assumed))
    assert (data.num_samples, data.assumed) == (12, None)
    (note,) = data.notes
    assert "samples is 12, not 13" in note
    assert planned(pictures(image_folder, assume=spec.Assume(samples=12, classes=2))).notes == ()


def test_a_run_refuses_other_data_than_assumed(image_folder: Path, text_files: Path) -> None:
    wrong = spec.Assume(shape=(1, 6, 6), classes=3, samples=12, test_samples=4)
    with pytest.raises(DataError) as caught:
        planned(pictures(image_folder, assume=wrong), for_plan=False)
    (problem,) = caught.value.problems
    assert problem.key == "data.assume"
    assert problem.message.endswith("shape is [3, 6, 6], not [1, 6, 6], classes is 2, not 3, test_samples is 0, not 4")
    with pytest.raises(DataError, match=r"vocabulary_size is 4\d, not 50"):
        planned(texts(text_files, assume=spec.Assume(vocabulary_size=50)), for_plan=False)


def test_a_run_needs_its_data(tmp_path: Path) -> None:
    with pytest.raises(DataMissing):
        planned(pictures(tmp_path, assume=spec.Assume(classes=5, samples=40)), for_plan=False)


def test_damaged_data_are_not_assumed(image_folder: Path) -> None:
    """What is there and cannot be read is an error of the plan too."""
    (image_folder / "test" / "horse").mkdir()
    section = pictures(image_folder, test=image_folder / "test", assume=spec.Assume(classes=2, samples=12))
    with pytest.raises(DataError, match="`horse` is not a training class"):
        planned(section)
