"""The sections of text sources: the file of a tokenizer, and what is dumped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alray.config.loading.load import dump_spec, load_spec
from alray.parts.sources.huggingface.keys import HuggingFace

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
