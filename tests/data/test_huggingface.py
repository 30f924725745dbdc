"""Sets and tokenizers of the extra `hub`, all from files on disk: no network."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from alray.data.dataset import open_data
from alray.data.huggingface import HuggingFace
from alray.data.vocabulary import make_tokenizer
from alray.errors import DataError
from alray.spec import data as spec

ROWS = [{"text": f"word{index} again", "title": "On", "label": ("neg", "pos")[index % 2]} for index in range(12)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf_cache")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "set", {"train": ROWS, "test": ROWS[:4]})


def write(folder: Path, splits: dict[str, list[dict[str, Any]]]) -> Path:
    folder.mkdir()
    for split, rows in splits.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
    return folder


def source(path: Path | None, **keys: Any) -> HuggingFace:
    given: dict[str, Any] = {
        "dataset": None,
        "path": path,
        "config": None,
        "train_split": "train",
        "test_split": "test",
        "text_columns": ("text",),
        "label_column": "label",
    }
    return HuggingFace(**{**given, **keys})


def test_a_folder_of_json(folder: Path) -> None:
    opened = source(folder, text_columns=("title", "text"))
    assert opened.classes == ("neg", "pos")
    train, test = opened.open("train"), opened.open("test")
    assert train is not None
    assert test is not None
    assert train.texts[:2] == ["On word0 again", "On word1 again"]
    assert list(train.labels)[:4] == [0, 1, 0, 1]
    assert len(test) == 4
    assert source(folder, test_split=None).open("test") is None


def test_a_folder_of_parquet_with_class_labels(tmp_path: Path) -> None:
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["x", "y", "z"])}
    )
    table = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [2, 0]}, features=features)
    (tmp_path / "set").mkdir()
    table.to_parquet(tmp_path / "set" / "train.parquet")
    opened = source(tmp_path / "set", test_split=None)
    assert opened.classes == ("x", "y", "z")
    train = opened.open("train")
    assert train is not None
    assert (train.texts, list(train.labels)) == (["a", "b"], [2, 0])


def test_a_folder_of_csv_with_integer_labels(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.csv").write_text("text,label\na,10\nb,9\nc,10\n")
    opened = source(tmp_path / "set", test_split=None)
    assert opened.classes == ("9", "10")
    train = opened.open("train")
    assert train is not None
    assert list(train.labels) == [1, 0, 1]


def test_from_a_spec_to_mini_batches(folder: Path) -> None:
    section = spec.HuggingFace(source="huggingface", path=folder, batch_size=4)
    data = open_data(section, seed=0, load=lambda reference: None)
    assert data.train.take([0, 1])[0].shape == (2, 2)
    assert data.words is not None
    assert data.words[2] == "again"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"label_column": "x"},
            "data.label_column: {folder}: there is no column `x`; the columns are text, ",
        ),
        ({"text_columns": ("text", "y")}, "data.text_columns: {folder}: there is no column `y`; "),
        ({"train_split": "dev"}, "data.train_split: {folder}: there is no split `dev`; the splits are train, test"),
    ],
)
def test_names_that_are_not_there(folder: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as caught:
        source(folder, **keys)
    assert str(caught.value).startswith(message.format(folder=folder))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": None, "title": "", "label": "neg"}, "row 1 of split `test` has no text in text"),
        (
            {"text": "a", "title": "", "label": "so"},
            "row 1 of split `test` has the label 'so', which is not",
        ),
        ({"text": "a", "title": "", "label": None}, "row 1 of split `test` has the label None"),
    ],
)
def test_a_row_that_is_not_whole(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    folder = write(tmp_path / "set", {"train": ROWS, "test": [ROWS[0], row]})
    with pytest.raises(DataError, match=message):
        source(folder).open("test")


def test_labels_that_are_no_classes(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", {"train": [{"text": "a", "label": 0.5}]})
    with pytest.raises(DataError, match="the column `label` does not contain classes"):
        source(folder, test_split=None)


def test_a_damaged_file_and_a_missing_folder(folder: Path) -> None:
    (folder / "train.jsonl").write_text('{"text": "a", "label": "neg"}\n{"text": "b", "la')
    with pytest.raises(DataError) as caught:
        source(folder)
    assert caught.value.problems[0].key == "data.path"
    assert "JSON parse error" in str(caught.value)
    with pytest.raises(DataError, match="folder not found"):
        source(folder / "none")


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """Splits words at hyphens."""
    made = Tokenizer(models.WordLevel({"word": 0, "part": 1, "-": 2, "[UNK]": 3}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_a_tokenizer_of_a_file(tokenizer: Path, folder: Path) -> None:
    assert make_tokenizer(str(tokenizer))("word-part other") == ["word", "-", "part", "[UNK]"]
    section = spec.HuggingFace(source="huggingface", path=folder, batch_size=4, text={"tokenizer": str(tokenizer)})
    data = open_data(section, seed=0, load=lambda reference: None)
    assert data.words == ("<pad>", "<unk>", "[UNK]")
    assert data.read_text("").tolist() == [1]


def test_a_tokenizer_that_is_not_there_or_damaged(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.text\.tokenizer: tokenizer not found"):
        make_tokenizer(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(DataError, match="cannot load the tokenizer"):
        make_tokenizer(str(tmp_path / "bad.json"))


@pytest.mark.parametrize("library", ["datasets", "tokenizers"])
def test_without_the_extra(library: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError) as caught:
        if library == "datasets":
            source(folder)
        else:
            make_tokenizer(str(tmp_path / "any.json"))
    message = str(caught.value)
    assert message.startswith("data: ") and f"`{library}`" in message and "pip install 'alray[hub]'" in message
