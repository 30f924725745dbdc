"""Pictures in folders, one subfolder per class."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from alray.config.sections.task import TaskSection
from alray.core.errors import DataError
from alray.data.batches import EvaluationBatches
from alray.data.dataset import Dataset
from alray.data.opening import check_pictures, open_data
from alray.parts.tasks.multi_label.keys import MultiLabel
from alray.parts.tasks.regression.keys import Regression
from tests.data import sections as spec
from tests.data.predicted import inputs


def opened(folder: Path, *, test: bool = True, task: TaskSection | None = None, **keys: Any) -> Dataset:
    section = spec.ImageFolder(
        source="image_folder",
        train=folder / "train",
        test=folder / "test" if test else None,
        **{"image_size": 6, "batch_size": 4, "validation_fraction": 0.0, **keys},
    )
    of_task = {} if task is None else {"task": task}
    return open_data(section, seed=0, load=spec.no_code, **of_task)


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
    assert torch.equal(next(inputs(data, str(image_folder / "train/cat/0.jpg"))), data.train[0][0])


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
    copies = image_folder / "train/cat/.ipynb_checkpoints"
    copies.mkdir()
    (copies / "0.jpg").write_bytes(b"x")
    data = opened(image_folder)
    assert len(data.train) == 12
    assert [line.partition(": ")[2] for line in data.notes] == [
        "1 of 13 files left out, such as `cat/notes.txt`: not a file with the ending of a picture that Pillow knows"
    ]


def test_what_is_left_out_of_a_folder_is_told(image_folder: Path, tmp_path: Path) -> None:
    cat = image_folder / "train/cat"
    for name in ("a.heic", "b.heic", "without_ending"):
        (cat / name).write_bytes(b"x")
    (image_folder / "train/beside.png").write_bytes(b"x")
    (cat / "lost.png").symlink_to(tmp_path / "nowhere.png")
    (cat / "more").symlink_to(image_folder / "test")
    for name in ("Thumbs.db", "desktop.ini", ".DS_Store", "._0.jpg"):
        (cat / name).write_bytes(b"x")
    data = opened(image_folder)
    assert len(data.train) == 12
    told = "\n".join(data.notes)
    assert re.search(r"train: 4 of 18 files left out, such as `beside.png`", told)
    assert re.search(r"train: 1 of 18 .*`cat/lost.png`: a link that leads nowhere", told)
    assert re.search(r"train: 1 of 18 .*`cat/more`: a link to a folder", told)
    assert len(data.notes) == 3


def test_a_validation_set_of_its_own(image_folder: Path) -> None:
    """The training set stays whole."""
    shutil.copytree(image_folder / "test", image_folder / "valid")
    section = {"source": "image_folder", "train": image_folder / "train", "image_size": 6, "batch_size": 4}
    data = open_data(spec.ImageFolder(**section, validation=image_folder / "valid"), seed=0, load=spec.no_code)
    assert (len(data.train), len(data.validation or ()), data.test) == (12, 4, None)
    (batch,) = EvaluationBatches(data, "validation")
    assert batch.labels.tolist() == [0, 0, 1, 1]
    assert torch.equal(batch.samples[0], next(inputs(data, str(image_folder / "valid/cat/0.jpg"))))
    (image_folder / "valid/cat/1.png").write_bytes(b"x")
    with pytest.raises(DataError, match="not a picture"):
        check_pictures(spec.ImageFolder(**section, validation=image_folder / "valid"), spec.no_code)


def test_height_and_width_of_their_own(image_folder: Path) -> None:
    data = opened(image_folder, image_size=[4, 9])
    assert (
        data.sample_shape == data.train[0][0].shape == next(inputs(data, str(image_folder / "train/cat/0.jpg"))).shape
    )
    assert data.sample_shape == (3, 4, 9)


def test_given_means_and_deviations(image_folder: Path) -> None:
    mean, deviation = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 1.0, 2.0])
    data = opened(image_folder, normalise={"mean": mean.tolist(), "deviation": deviation.tolist()})
    values = (opened(image_folder).train[3][0] + 1) / 2
    assert torch.allclose(data.train[3][0], (values - mean[:, None, None]) / deviation[:, None, None], atol=1e-6)
    assert torch.equal(next(inputs(data, str(image_folder / "train/cat/3.png"))), data.train[3][0])
    with pytest.raises(DataError, match=r"data.normalise: .*1 means and 1 standard deviations"):
        opened(image_folder, normalise={"mean": [0.5], "deviation": [0.5]})


def tabulate(image_folder: Path, names: str, rows: dict[str, list[str]]) -> Path:
    """Write a table of targets into each folder. rows: by split, without the paths of pictures."""
    for split, cells in rows.items():
        folder = image_folder / split
        pictures = sorted(path.relative_to(folder) for path in folder.glob("*/*.*"))[: len(cells)]
        lines = [f"file_name,{names}", *(f"{path},{row}" for path, row in zip(pictures, cells, strict=True))]
        (folder / "metadata.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return image_folder


def test_a_table_of_targets(image_folder: Path) -> None:
    cells = {"train": ["10,-1,x", "30,3,x", "20,1,x"], "test": ["40,5,x"]}
    folder = tabulate(image_folder, "age,tilt,remark", cells)
    data = opened(folder, task=Regression(kind="regression"), label_columns=["age", "tilt"], batch_size=2)
    assert (data.classes, len(data.train), data.sample_shape) == (("age", "tilt"), 3, (3, 6, 6))
    _, labels = data.train.take([0, 1, 2])
    torch.testing.assert_close(labels.mean(0), torch.zeros(2))
    expected = torch.tensor([[10.0, -1.0], [30.0, 3.0], [20.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(data.in_units(labels), expected, rtol=1e-6, atol=1e-6)
    (batch,) = EvaluationBatches(data, "test")
    torch.testing.assert_close(data.in_units(batch.labels)[0], torch.tensor([40.0, 5.0], dtype=torch.float64))


def test_targets_are_standardised_by_the_training_split(image_folder: Path) -> None:
    folder = tabulate(image_folder, "age", {"train": [f"{step**3}" for step in range(8)]})
    data = opened(folder, test=False, task=Regression(kind="regression"), batch_size=2, validation_fraction=0.5)
    _, labels = data.train.take(range(4))
    torch.testing.assert_close(labels.mean(0), torch.zeros(1), atol=1e-6, rtol=0)
    assert labels.std(unbiased=False).item() == pytest.approx(1.0)


def test_a_table_of_labels(image_folder: Path) -> None:
    folder = tabulate(image_folder, "warm,round", {"train": ["1,0", "0,0", "1,1"], "test": ["0,1"]})
    data = opened(folder, task=MultiLabel(kind="multi_label"), batch_size=2)
    assert data.classes == ("warm", "round")
    assert data.train.take([0, 1, 2])[1].tolist() == [[1, 0], [0, 0], [1, 1]]


@pytest.mark.parametrize(
    ("names", "rows", "said", "line"),
    [
        ("warm", ["1", "0.5"], "the labels are 0.5", 3),
        ("warm", ["1", "hot"], "`warm` has `hot`, which is not a finite number", 3),
        ("warm", ["1", "1,1"], "expected 2 columns, got 3", 3),
        ("warm", [], "there is no line with a picture", None),
    ],
)
def test_a_table_with_something_wrong(image_folder: Path, names: str, rows: list[str], said: str, line: int) -> None:
    folder = tabulate(image_folder, names, {"train": rows, "test": rows})
    with pytest.raises(DataError, match=said) as refused:
        opened(folder, task=MultiLabel(kind="multi_label"), batch_size=2)
    assert refused.value.problems[0].line == line


def test_tables_of_other_columns(image_folder: Path) -> None:
    folder = tabulate(image_folder, "warm", {"train": ["1", "0"]})
    tabulate(image_folder, "cold", {"test": ["1"]})
    with pytest.raises(DataError, match="columns cold, and that of the training set warm"):
        opened(folder, task=MultiLabel(kind="multi_label"), batch_size=2)
