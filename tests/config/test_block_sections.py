"""The entries of `model.components`: where their files are, and what checks and the schema know of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from alray.config.loading.load import dump_spec, load_spec
from alray.config.schema import json_schema


def with_blocks(small: str, *entries: str) -> str:
    before, _, rest = small.partition(
        "    - {block: vgg, channels: [4]}\n    - {block: vgg, channels: [8], pool: true}\n"
    )
    return before + "".join(f"    - {{{entry}}}\n" for entry in entries) + rest.replace("stages: 2", "stages: 1")


def test_vectors_are_found_from_the_spec_and_dumped_whole(small: str, write: Callable[[str], Path]) -> None:
    file = write(with_blocks(small, "block: embedding, dim: 3, vectors: words/glove.txt"))
    spec = load_spec(file.resolve()).spec
    assert spec.model.components[0].fields["vectors"] == Path.cwd() / "words" / "glove.txt"
    dumped = yaml.safe_load(dump_spec(spec))
    assert dumped["model"]["components"][0]["vectors"] == str(Path.cwd() / "words" / "glove.txt")


@pytest.mark.parametrize("entry", ["block: stem, channels: 4", "block: residual, channels: 4, layers: 1"])
def test_blocks_with_batch_norm_are_known_as_such(small: str, complaints: Callable[..., list[str]], entry: str) -> None:
    text = with_blocks(small, entry, "block: linear, width: 4").replace("{stages: 1}", "{stages: 2}")
    text = text.replace("{kind: associated_learning}", "{kind: backpropagation}").replace(
        "{stages: 2}", "{schedule: gpipe, micro_batches: 4, stages: 2}"
    )
    (found,) = complaints(text)
    assert found.startswith("x.yaml:5: model.components[0].block: ")


def test_strides_count_where_pools_follow(small: str, complaints: Callable[..., list[str]]) -> None:
    halving = "block: residual, channels: 4, layers: 1, stride: 2, repeat: 2"
    stem, pool = "block: stem, channels: 4", "block: vgg, channels: [4], pool: true"
    (found,) = complaints(with_blocks(small, stem, halving, pool, pool))
    assert found.startswith("x.yaml:8: model.components[3].pool: ")


def test_a_shortcut_is_a_text_in_the_schema() -> None:
    definitions = json_schema()["$defs"]
    assert definitions["Residual"]["properties"]["shortcut"]["enum"] == ["3x3", "1x1"]
    assert {"Stem", "Embedding", "Lstm", "Transformer", "LinearLayer", "Mlp"} <= definitions.keys()
