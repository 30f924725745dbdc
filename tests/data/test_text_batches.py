"""Mini-batches of text: padding, mask, and the same bits from any step with any number of workers."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from alray.core.errors import DataError
from alray.data.batches import Batch, EvaluationBatches
from alray.data.dataset import Dataset
from alray.data.opening import open_data
from alray.runtime.workload import open_training_data
from tests.data import sections as spec
from tests.data.predicted import inputs

from .test_batches import collect


def texts(folder: Path, *, fixed_length: bool = False, seed: int = 1, **keys: Any) -> Dataset:
    section = spec.TextCsv(
        **{
            "source": "text_csv",
            "train": folder / "train.csv",
            "test": folder / "test.csv",
            "batch_size": 8,
            "text": {"max_tokens": 10},
            **keys,
        }
    )
    return open_data(section, seed=seed, load=spec.no_code, fixed_length=fixed_length)


def same(left: list[Batch], right: list[Batch]) -> bool:
    return len(left) == len(right) and all(
        a.step == b.step
        and torch.equal(a.samples, b.samples)
        and torch.equal(a.labels, b.labels)
        and a.mask is not None
        and b.mask is not None
        and torch.equal(a.mask, b.mask)
        for a, b in zip(left, right, strict=True)
    )


def test_what_the_data_says_of_itself(text_files: Path) -> None:
    data = texts(text_files)
    assert data.sample_shape == (10,)
    assert data.sample_shape.dtype == torch.int64
    assert data.classes == ("1", "2", "3")
    assert data.sample_shape.words is not None
    assert data.sample_shape.words[:2] == ("<pad>", "<unk>")
    assert "title" in data.sample_shape.words
    assert [len(split or ()) for split in data.splits.values()] == [54, 6, 15]


def test_what_a_batch_is_made_of(text_files: Path) -> None:
    data = texts(text_files)
    batches = collect(data, 0, 6)
    assert {batch.samples.shape[1] for batch in batches} == {10}
    narrow = collect(texts(text_files, batch_size=1, text={"max_tokens": 10}), 0, 54)
    assert len({batch.samples.shape[1] for batch in narrow}) > 3
    for batch in [*batches, *narrow]:
        assert batch.mask is not None
        assert batch.samples.dtype == torch.int64
        assert batch.samples.is_contiguous()
        assert batch.mask.dtype == torch.bool
        assert batch.mask.shape == batch.samples.shape
        assert torch.equal(batch.mask, batch.samples != 0)
        lengths = batch.mask.sum(1)
        assert int(lengths.min()) >= 1
        assert int(lengths.max()) == batch.samples.shape[1]
        assert torch.equal(batch.mask, torch.arange(batch.samples.shape[1]) < lengths[:, None])
        assert batch.labels.dtype == torch.int64


def test_fixed_length_adds_padding_and_nothing_else(text_files: Path) -> None:
    loose = collect(texts(text_files, batch_size=2), 0, 27)
    fixed = collect(texts(text_files, batch_size=2, fixed_length=True), 0, 27)
    assert any(batch.samples.shape[1] < 10 for batch in loose)
    for a, b in zip(loose, fixed, strict=True):
        width = a.samples.shape[1]
        assert b.samples.shape == (2, 10)
        assert torch.equal(a.samples, b.samples[:, :width])
        assert not b.samples[:, width:].any()
        assert b.mask is not None
        assert not b.mask[:, width:].any()
    for batch in EvaluationBatches(texts(text_files, batch_size=2, fixed_length=True), "test"):
        assert batch.samples.shape[1] == 10


def test_a_run_that_starts_late_gets_the_same_bits(text_files: Path) -> None:
    whole = collect(texts(text_files), 0, 16)
    for start_step in (1, 5, 6, 7, 14):
        assert same(whole[start_step:], collect(texts(text_files), start_step, 16))


@pytest.mark.full  # test_batches.py has pictures
def test_workers_do_not_change_the_bits(text_files: Path) -> None:
    data = texts(text_files)
    alone = collect(data, 2, 9)
    assert same(alone, collect(data, 2, 9, workers=1))
    assert multiprocessing.active_children() == []


def test_an_epoch_holds_every_document_once(text_files: Path) -> None:
    data = texts(text_files, batch_size=9)
    for epoch in range(2):
        labels = torch.cat([batch.labels for batch in collect(data, epoch * 6, epoch * 6 + 6)])
        everything = data.train.take(range(54))[1]
        assert sorted(labels.tolist()) == sorted(everything.tolist())


def test_evaluation_goes_in_order_and_keeps_the_last_partial_batch(text_files: Path) -> None:
    got = list(EvaluationBatches(texts(text_files), "test"))
    assert [len(batch.labels) for batch in got] == [8, 7]
    assert torch.cat([batch.labels for batch in got]).tolist() == [index % 3 for index in range(15)]
    assert all(batch.mask is not None for batch in got)


def test_the_vocabulary_follows_the_seed_of_the_split_and_nothing_else(text_files: Path) -> None:
    assert texts(text_files).sample_shape.words == texts(text_files).sample_shape.words
    assert texts(text_files, validation_fraction=0.5).sample_shape.words != texts(text_files).sample_shape.words


def test_the_size_of_the_vocabulary(text_files: Path) -> None:
    data = texts(text_files, text={"vocabulary_size": 12, "max_tokens": 10})
    assert data.sample_shape.words is not None
    assert len(data.sample_shape.words) == 12
    assert int(data.train.take(range(54))[0].max()) == 11


def test_a_line_of_text_becomes_a_sample(text_files: Path) -> None:
    data = texts(text_files)
    assert data.sample_shape.words is not None
    sample = next(inputs(data, "Title, unheard-of"))
    assert [data.sample_shape.words[number] for number in sample.tolist()] == ["title", ",", "<unk>"]
    assert next(inputs(data, "")).tolist() == [1]
    assert len(next(inputs(data, "title " * 50))) == 10


def test_a_document_is_no_picture() -> None:
    digits = open_data(spec.Digits(source="digits"), seed=0, load=spec.no_code)
    with pytest.raises(DataError, match="picture not found"):
        next(inputs(digits, "seven"))
    assert digits.sample_shape.words is None
    assert next(iter(EvaluationBatches(digits, "test"))).mask is None


def test_fewer_documents_than_a_batch(text_files: Path) -> None:
    with pytest.raises(DataError, match="fewer than one mini-batch of 64"):
        texts(text_files, batch_size=64)


def test_costs_for_any_layout_are_those_of_padded_texts(text_files: Path, load_small: Callable[..., Any]) -> None:
    """A pipeline of backpropagation pads them all, and local losses never do."""
    text = f"data={{source: text_csv, train: {text_files / 'train.csv'}, text: {{max_tokens: 9}}, batch_size: 2}}"
    for method, padded in (("backpropagation", True), ("decoupled_greedy", False)):
        loaded = load_small(text, "model.components=[{block: embedding, dim: 3}]", f"method={method}").spec
        data = open_training_data(loaded, spec.no_code, any_layout=True)
        assert ({batch.samples.shape[1] for batch in EvaluationBatches(data, "train")} == {9}) == padded


def test_compiled_networks_get_texts_of_one_width(text_files: Path, load_small: Callable[..., Any]) -> None:
    """Each width would be compiled by itself."""
    text = f"data={{source: text_csv, train: {text_files / 'train.csv'}, text: {{max_tokens: 9}}, batch_size: 2}}"
    for compiled in (False, True):
        loaded = load_small(text, "model.components=[{block: embedding, dim: 3}]", f"run.compile={compiled}").spec
        data = open_training_data(loaded, spec.no_code)
        assert ({batch.samples.shape[1] for batch in EvaluationBatches(data, "train")} == {9}) == compiled
