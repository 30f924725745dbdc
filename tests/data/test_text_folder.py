"""The layout of IMDb, whole and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from alray.data.text_folder import TextFolder
from alray.errors import DataError


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    for split, count in (("train", 3), ("test", 2)):
        for name in ("pos", "neg", "unsup"):
            folder = tmp_path / split / name
            folder.mkdir(parents=True)
            for index in range(count):
                (folder / f"{index}_7.txt").write_text(f"{split} {name} {index}<br />café", encoding="utf-8")
            (folder / ".hidden.txt").write_text("no")
            (folder / "urls.md").write_text("no")
    return tmp_path


def test_a_folder_per_class(reviews: Path) -> None:
    source = TextFolder(train=reviews / "train", test=reviews / "test")
    assert source.classes == ("neg", "pos")
    train, test = source.open("train"), source.open("test")
    assert train is not None
    assert test is not None
    assert train.texts[0] == "train neg 0<br />café"
    assert list(train.labels) == [0, 0, 0, 1, 1, 1]
    assert (len(test), test.texts[-1]) == (4, "test pos 1<br />café")
    assert TextFolder(train=reviews / "train", test=None).open("test") is None


def test_a_class_without_documents(reviews: Path) -> None:
    for path in (reviews / "train" / "pos").glob("[0-9]*"):
        path.unlink()
    with pytest.raises(DataError) as caught:
        TextFolder(train=reviews / "train", test=None).open("train")
    assert str(caught.value) == (
        f"{reviews / 'train' / 'pos'}: data.train: the class has no documents (*.txt); "
        "put documents (*.txt) in the folder or remove it"
    )


def test_folders_that_are_not_there(reviews: Path) -> None:
    with pytest.raises(DataError, match=r"none: data\.train: folder not found"):
        TextFolder(train=reviews / "none", test=None)
    (reviews / "empty" / "unsup").mkdir(parents=True)
    with pytest.raises(DataError, match=r"put the documents \(\*\.txt\) of each class in a subfolder named after it"):
        TextFolder(train=reviews / "empty", test=None)
    (reviews / "test" / "neutral").mkdir()
    with pytest.raises(DataError, match=r"class `neutral` is not a training class \(neg, pos\)"):
        TextFolder(train=reviews / "train", test=reviews / "test").open("test")


def test_bytes_that_are_not_text(reviews: Path) -> None:
    damaged = reviews / "train" / "pos" / "1_7.txt"
    damaged.write_bytes(b"good\nbad \x80 byte")
    with pytest.raises(DataError) as caught:
        TextFolder(train=reviews / "train", test=None).open("train")
    assert str(caught.value) == f"{damaged}:2: byte 0x80 is not text in UTF-8; convert the file to UTF-8"
