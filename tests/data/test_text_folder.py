"""The layout of IMDb, whole and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from alray.parts.sources.text_folder.source import TextFolderSource


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
    source = TextFolderSource(train=reviews / "train", test=reviews / "test")
    assert source.classes == ("neg", "pos")
    train, test = source.open("train"), source.open("test")
    assert train is not None
    assert test is not None
    assert train.texts[0] == "train neg 0<br />café"
    assert list(train.labels) == [0, 0, 0, 1, 1, 1]
    assert (len(test), test.texts[-1]) == (4, "test pos 1<br />café")
    assert [("2 of 8 files" in line, "neg/urls.md" in line) for line in source.notes[:1]] == [(True, True)]
    assert len(source.notes) == 2
    assert TextFolderSource(train=reviews / "train", test=None).open("test") is None
