"""The laws of sources. A source enters by one row: how its files are written, and the sizes of its sets."""

from __future__ import annotations

import csv
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from pydantic import TypeAdapter

from alray.config.made import no_user_code
from alray.config.sections.data import SOURCES, Data, DataSection
from alray.config.sections.task import TASKS, TaskSection
from alray.data.batches import EvaluationBatches, TrainBatches
from alray.data.dataset import Dataset
from alray.data.opening import open_data
from tests import stand_ins
from tests.pairwise import first_alone

ADAPTER = TypeAdapter[DataSection](Data)
CLASSES, TRAIN, TEST = 3, 60, 12


def nothing(folder: Path) -> dict[str, Any]:
    return {}


def table(folder: Path) -> dict[str, Any]:
    numbers = numpy.random.default_rng(0)
    for split, count in (("train", TRAIN), ("test", TEST)):
        rows = [[*numbers.normal(size=4), f"class {index % CLASSES}"] for index in range(count)]
        with (folder / f"{split}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["a", "b", "c", "d", "label"], *rows])
    return {"train": folder / "train.csv", "test": folder / "test.csv", "columns": ["a", "b", "d"]}


def texts(folder: Path) -> dict[str, Any]:
    stand_ins.text_csv(folder / "texts", num_classes=CLASSES, num_train=TRAIN, columns=2, num_test=TEST)
    return {"train": folder / "texts/train.csv", "test": folder / "texts/test.csv"}


def text_folders(folder: Path) -> dict[str, Any]:
    for split, count in (("train", TRAIN), ("test", TEST)):
        for index in range(count):
            file = folder / split / f"kind{index % CLASSES}" / f"{index}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"a document {index} with words{index % 7}")
    return {"train": folder / "train", "test": folder / "test"}


def text(folder: Path) -> dict[str, Any]:
    (folder / "all.txt").write_text("\n\n".join(f"document {index} " * 5 for index in range(TRAIN + TEST)))
    return {"file": folder / "all.txt", "separator": "\n\n", "test_fraction": TEST / (TRAIN + TEST), "context": 9}


def json_rows(folder: Path) -> dict[str, Any]:
    for split, count in (("train", TRAIN), ("test", TEST)):
        rows = [{"text": f"row {index}", "label": f"kind{index % CLASSES}"} for index in range(count)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"path": folder}


def pictures(folder: Path) -> Path:
    per_class = {"train": TRAIN // CLASSES, "test": TEST // CLASSES}
    original = stand_ins._picture(folder.with_suffix(".jpg"), 20, 16)
    for split, count in per_class.items():
        for index in range(count * CLASSES):
            stand_ins._same_file(original, folder / split / f"kind{index % CLASSES}" / f"{index}.jpg")
    return folder


def picture_folders(folder: Path) -> dict[str, Any]:
    made = pictures(folder / "pictures")
    return {"train": made / "train", "test": made / "test", "image_size": [6, 5]}


def pictures_of_the_hub(folder: Path) -> dict[str, Any]:
    return {"path": pictures(folder / "pictures"), "image_size": [6, 5]}


def fashion(folder: Path) -> dict[str, Any]:
    stand_ins.fashion_mnist(folder / "idx", num_train=TRAIN, num_test=TEST)
    return {"dataset": "FashionMNIST", "root": folder / "idx"}


def tiny(folder: Path) -> dict[str, Any]:
    stand_ins.tiny_imagenet(folder / "tiny", num_train_per_class=1)
    return {"root": folder / "tiny", "image_size": 8}


def few_docstrings(folder: Path) -> dict[str, Any]:
    stand_ins.docstrings_cache(folder / "alray", num_documents=400)
    return {}


@dataclass(frozen=True)
class Row:
    """A source.

    Attributes:
        write: writes its files into a folder, and gives the keys that name them.
        keys: further ones.
        sizes: of its training and its test set; None: those that the kind of the source says.
        task: what the labels are for.
        follows: whether test samples depend on the training split: rows by its statistics, documents by its words.
    """

    write: Callable[[Path], dict[str, Any]] = nothing
    keys: tuple[tuple[str, Any], ...] = ()
    sizes: tuple[int, int] | None = (TRAIN, TEST)
    task: str = "classification"
    follows: bool = False


ROWS = {
    "digits": Row(sizes=(1437, 360)),
    "synthetic": Row(keys=(("samples", 50), ("classes", 4), ("shape", [2, 4, 4])), sizes=(50, 10)),
    "table": Row(table, follows=True),
    "text_csv": Row(texts, follows=True),
    "text_folder": Row(text_folders, follows=True),
    "text": Row(text, sizes=None, task="next_token"),
    "docstrings": Row(few_docstrings, sizes=None, follows=True),
    "huggingface": Row(json_rows, follows=True),
    "huggingface_images": Row(pictures_of_the_hub),
    "image_folder": Row(picture_folders),
    "torchvision": Row(fashion),
    "tiny_imagenet": Row(tiny, sizes=(200, 200)),
}
of_each = pytest.mark.parametrize("name", ROWS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sources")


@pytest.fixture
def section(folders: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DataSection]:
    """The section of a source whose files are there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folders / "docstrings"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", folders / "hub")

    def made(name: str, **more: Any) -> DataSection:
        row, folder = ROWS[name], folders / name
        file = folder / "keys.pickle"
        if not folder.exists():
            folder.mkdir()
            file.write_bytes(pickle.dumps(row.write(folder)))
        keys = {"batch_size": 8, **pickle.loads(file.read_bytes()), **dict(row.keys), **more}
        return ADAPTER.validate_python({"source": name, **keys})

    return made


def opened(section: DataSection, seed: int = 0) -> Dataset:
    task: TaskSection = TASKS.section(ROWS[section.source].task)
    return open_data(section, seed=seed, load=no_user_code, task=task)


def first(data: Dataset, count: int = 3, *, seed: int = 0, workers: int = 0) -> list[torch.Tensor]:
    """Samples and labels of the first mini-batches."""
    with TrainBatches(data, seed=seed, start_step=0, end_step=count, workers=workers) as batches:
        return [each for batch in batches for each in (batch.samples, batch.labels)]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


def test_each_source_has_a_row() -> None:
    assert ROWS.keys() == SOURCES.sections.keys()


@of_each
def test_its_sets_have_their_sizes_and_are_divided_as_the_section_says(section: Any, name: str) -> None:
    data = opened(section(name, validation_fraction=0.2, train_fraction=0.5))
    assert data.validation is not None and data.test is not None
    if (sizes := ROWS[name].sizes) is not None:
        assert (len(data.validation), len(data.train)) == data.section.split(sizes[0])
        assert len(data.test) == sizes[1]
    whole = opened(section(name, validation_fraction=0.0))
    assert whole.validation is None and len(whole.train) >= len(data.train) + len(data.validation)


@of_each
def test_what_is_known_before_it_is_opened_is_what_is_found(section: Any, name: str) -> None:
    known, data = section(name).of_kind, opened(section(name))
    shape = None if known.shape is None or known.words else tuple(known.shape)
    assert shape in (None, tuple(data.sample_shape))
    assert known.classes in (None, len(data.classes))
    assert (known.words is None) == (data.sample_shape.words is None)
    assert section(name).training_set in (None, data.num_samples)


@of_each
def test_a_seed_gives_the_same_bits_again_and_another_one_other_parts(section: Any, name: str) -> None:
    one, again, other = (first(opened(section(name), seed), seed=seed) for seed in (0, 0, 1))
    assert same(one, again) and not same(one, other)
    test, other_test = (next(iter(EvaluationBatches(opened(section(name), seed), "test"))) for seed in (0, 1))
    assert torch.equal(test.labels, other_test.labels)
    assert ROWS[name].follows or torch.equal(test.samples, other_test.samples)


@of_each
def test_it_goes_to_other_processes_whole(section: Any, name: str) -> None:
    data = opened(section(name))
    assert same(first(pickle.loads(pickle.dumps(data))), first(data))


@pytest.mark.parametrize("name", first_alone(["image_folder", "text_csv", "table", "text"]))
def test_workers_give_the_same_bits(section: Any, name: str) -> None:
    assert same(first(opened(section(name)), workers=1), first(opened(section(name))))
