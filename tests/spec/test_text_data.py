"""The sections of text sources: their keys, and what does not go together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alray.errors import SpecError
from alray.spec.data import Docstrings, HuggingFace, TextCsv, TinyImagenet
from alray.spec.loading import dump_spec, load_spec

SPEC = """\
name: text
data: {{{data}}}
model: {{components: [{{block: embedding, dim: 8}}]}}
run: {{steps: 1}}
"""


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], Any]:
    def read(data: str) -> Any:
        (tmp_path / "x.yaml").write_text(SPEC.format(data=data), encoding="utf-8")
        return load_spec(tmp_path / "x.yaml").spec

    return read


def test_defaults_and_places(load: Callable[[str], Any], tmp_path: Path) -> None:
    data = load("source: text_csv, train: ag/train.csv").data
    assert isinstance(data, TextCsv)
    assert (data.train, data.test) == (tmp_path / "ag" / "train.csv", None)
    assert (data.text.tokenizer, data.text.vocabulary_size, data.text.max_tokens) == ("basic_english", 30_000, 128)
    data = load("source: docstrings, cache: here, text: {max_tokens: 9}").data
    assert isinstance(data, Docstrings)
    assert (data.cache, data.text.max_tokens, data.text.vocabulary_size) == (tmp_path / "here", 9, 30_000)
    assert isinstance(load("source: tiny_imagenet, root: x, image_size: 32").data, TinyImagenet)


def test_the_file_of_a_tokenizer_is_found_from_the_spec_and_a_name_is_left_alone(
    load: Callable[[str], Any], tmp_path: Path
) -> None:
    data = load("source: docstrings, text: {tokenizer: sub/pieces.json}").data
    assert data.text.tokenizer == str(tmp_path / "sub" / "pieces.json")
    assert load("source: docstrings, text: {tokenizer: bert-base-uncased}").data.text.tokenizer == "bert-base-uncased"


@pytest.mark.parametrize(
    "data",
    [
        "source: text_folder, train: a, test: b",
        "source: docstrings",
        "source: huggingface, path: a, text_columns: [title, content], test_split: null",
        "source: huggingface, dataset: ag_news",
        "source: tiny_imagenet, root: a",
    ],
)
def test_what_is_dumped_is_read_again(load: Callable[[str], Any], tmp_path: Path, data: str) -> None:
    spec = load(data)
    (tmp_path / "again.yaml").write_text(dump_spec(spec), encoding="utf-8")
    assert load_spec(tmp_path / "again.yaml").spec == spec
    if isinstance(spec.data, HuggingFace) and spec.data.path is not None:
        assert spec.data.text_columns == ("title", "content")


@pytest.mark.parametrize(
    ("data", "key", "message"),
    [
        (
            "source: docstrings, augment: strong",
            "data.augment",
            "this is for pictures, and the samples of this source are documents; set data.augment=none",
        ),
        (
            "source: docstrings, image_size: 32",
            "data.image_size",
            "this is for pictures, and the samples of this source are documents; leave it out",
        ),
        (
            "source: huggingface",
            "data",
            "exactly one of `dataset` and `path` is needed; `dataset` is a name on the hub, `path` a folder on disk",
        ),
        (
            "source: huggingface, dataset: a, path: b",
            "data",
            "exactly one of `dataset` and `path` is needed; `dataset` is a name on the hub, `path` a folder on disk",
        ),
        ("source: docstrings, text: {tokenizer: ''}", "data.text.tokenizer", "expected the name of a tokenizer"),
        ("source: docstrings, text: {vocabulary_size: 2}", "data.text.vocabulary_size", ""),
        ("source: docstrings, text: {max_tokens: 0}", "data.text.max_tokens", ""),
        ("source: digits, text: {max_tokens: 3}", "data.text", "unknown key"),
        ("source: text_csv", "data.train", ""),
        (
            "source: 'python:words.Own', text: {}, image_size: 8",
            "data.text",
            "`image_size` is for pictures, and samples with a `text` are documents; leave out image_size",
        ),
    ],
)
def test_what_is_refused(load: Callable[[str], Any], data: str, key: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(data)
    (problem,) = caught.value.problems
    assert problem.key == key
    assert problem.line == 2
    assert message in str(problem)
