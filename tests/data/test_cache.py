"""A process whose runs are trials of a study reads its data once; others read it for every run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from alray.data import cache, text_data
from alray.data.dataset import Dataset
from alray.data.documents import Numbering
from alray.data.opening import open_data
from alray.parts.sources.digits.source import DigitsSource
from tests.data import sections as spec


@pytest.fixture
def caching(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cache, "_cache", None)
    cache.enable_cache()
    yield


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """The first argument of each call of a method from now on."""
    calls, real = [], getattr(owner, name)

    def call(self: Any, *arguments: Any) -> Any:
        calls.append(arguments[0])
        return real(self, *arguments)

    monkeypatch.setattr(owner, name, call)
    return calls


def digits(seed: int = 0, **keys: Any) -> Dataset:
    return open_data(spec.Digits(source="digits", **keys), seed=seed, load=spec.no_code)


def documents(folder: Path, **keys: Any) -> Dataset:
    files = {"train": folder / "train.csv", "test": folder / "test.csv"}
    return open_data(spec.TextCsv(source="text_csv", batch_size=8, **files, **keys), seed=1, load=spec.no_code)


def same(left: Dataset, right: Dataset) -> bool:
    """Whether the splits hold the same samples."""
    pairs = zip(left.splits.values(), right.splits.values(), strict=True)
    takes = [(a.take(range(len(a)))[0], b.take(range(len(b)))[0]) for a, b in pairs if a is not None and b is not None]
    return len(takes) == 3 and all(torch.equal(a, b) for a, b in takes)


def test_runs_of_one_set_share_it(caching: None, monkeypatch: pytest.MonkeyPatch) -> None:
    apart = [digits(seed=seed, batch_size=size) for seed, size in ((0, 64), (1, 16))]
    opened = counted(monkeypatch, DigitsSource, "open")
    assert all(same(data, digits(seed=seed)) for seed, data in enumerate(apart))
    assert len(digits(train_fraction=0.5).train) == round(1293 * 0.5)
    assert opened == []
    digits(image_size=16)
    assert opened == ["train", "test"]


def test_nothing_is_cached_unless_the_cache_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_cache", None)
    opened = counted(monkeypatch, DigitsSource, "open")
    digits()
    digits()
    assert opened == ["train", "test"] * 2


def test_texts_are_tokenised_once(caching: None, monkeypatch: pytest.MonkeyPatch, text_files: Path) -> None:
    first = documents(text_files)
    tokenised = counted(monkeypatch, Numbering, "read")
    again = documents(text_files, train_fraction=0.5)
    assert (len(tokenised), len(again.train)) == (0, round(54 * 0.5))
    assert same(first, documents(text_files)) and first.sample_shape.words == documents(text_files).sample_shape.words
    monkeypatch.setattr(text_data, "make_tokenizer", lambda name: str.split)
    documents(text_files, text={"tokenizer": "another", "max_tokens": 10})
    assert len(tokenised) == 2
