"""A test set that is a part of all documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from alray.core.errors import DataError
from alray.data.opening import open_data
from alray.data.redivided import Divided, Redivided
from alray.data.source import TextSet
from alray.parts.sources.text_csv.source import TextCsvSource
from tests.data import sections as spec


def source(folder: Path, *, test: bool) -> TextCsvSource:
    return TextCsvSource(train=folder / "train.csv", test=folder / "test.csv" if test else None)


@pytest.mark.parametrize(("test", "documents"), [(True, 75), (False, 60)])
def test_every_document_is_in_one_part(text_files: Path, test: bool, documents: int) -> None:
    whole = source(text_files, test=test)
    pooled = [entry for part in (whole.open("train"), whole.open("test")) if part for entry in _entries(part)]
    parts = Redivided(whole, 0.2)
    train, test_set = parts.open("train"), parts.open("test")
    assert (len(train), len(test_set)) == (documents - documents // 5, documents // 5)
    assert sorted(_entries(train) + _entries(test_set)) == sorted(pooled)
    assert parts.classes == whole.classes
    if test:
        assert set(_entries(test_set)) - set(_entries(whole.open("test")))  # from both files


def test_notes_stay(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(",label,text\n" + "".join(f"{n},{n % 2},word\n" for n in range(20)))
    section = spec.TextCsv(source="text_csv", train=tmp_path / "train.csv", test_fraction=0.2, batch_size=2)
    assert "column 0" in open_data(section, seed=0, load=str).notes[0]


def _entries(part: object) -> list[tuple[str, int]]:
    return list(zip(part.texts, part.labels, strict=True))  # type: ignore[attr-defined]


class Unclassed(Divided):
    classes = ("text",)


def test_the_part_is_random_and_always_the_same() -> None:
    def test_of(purpose: str) -> list[int]:
        numbers = TextSet([""] * 1000, range(1000))
        return Unclassed(lambda: numbers, 0.2, purpose).open("test").labels

    part = test_of("x")
    assert part == test_of("x") != test_of("y")
    assert part == sorted(part) != list(range(200))
    assert 60 < sum(index < 500 for index in part) < 140


def test_a_spec_asks_for_it_and_its_seed_does_not_change_it(text_files: Path) -> None:
    section = spec.TextCsv(
        source="text_csv",
        train=text_files / "train.csv",
        test=text_files / "test.csv",
        test_fraction=0.2,
        batch_size=8,
    )
    first, second = (open_data(section, seed=seed, load=str) for seed in (0, 1))
    assert [len(split or ()) for split in first.splits.values()] == [54, 6, 15]
    assert first.test is not None
    assert second.test is not None
    assert first.test.take(range(15))[1].tolist() == second.test.take(range(15))[1].tolist()
    alone = section.model_copy(update={"test_fraction": 0.001})
    with pytest.raises(DataError, match="the test set is empty"):
        open_data(alone, seed=0, load=str)
