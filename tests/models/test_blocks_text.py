"""Blocks of text: nothing depends on padding, and vectors are in the rows of their words."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from alray.core.errors import DataError, SpecError
from alray.models.encoder import module_draws
from alray.models.shape import Shape
from alray.parts.blocks.embedding.block import SPREAD
from tests.models.built import builder
from tests.parts.test_block_laws import ragged

WORDS = ("<pad>", "<unk>", "the", "cat", "sat", "naïve")
TEXT = Shape((9,), torch.int64, words=WORDS)


def build(block: str, input: Shape, **fields: object) -> nn.Module:
    return builder(block)(input, **fields)


def test_evaluation_of_a_transformer_is_its_training_without_dropout():
    module = build("transformer", Shape((9, 6)), heads=3, feedforward=5)
    s, mask = ragged(3, 7, 2, positions=7)
    trained = module.train()(s, mask)
    with torch.no_grad():
        assert torch.equal(module.eval()(s, mask), trained)


def test_dropout_is_seen_and_drawn_from_the_generator_at_hand():
    torch.manual_seed(3)
    module = build("transformer", Shape((9, 6)), heads=3, feedforward=5, dropout=0.3)
    assert module_draws(module)
    s, mask = ragged(3, 7, positions=7)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(module(s, mask))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_what_a_transformer_refuses():
    with pytest.raises(SpecError, match=r"block `transformer` .* 6, not 300"):
        build("transformer", Shape((9, 6)), dim=300, heads=3, feedforward=5)
    with pytest.raises(SpecError, match="divides a width of 6 among its heads, and 4 is not a divisor"):
        build("transformer", Shape((9, 6)), heads=4, feedforward=5)


def test_linear_layers_flatten_images():
    module = build("mlp", Shape((3, 4, 4)), widths=[5, 2], activation="tanh")
    assert module(torch.randn(7, 3, 4, 4)).shape == (7, 2)
    assert not module_draws(module) and module_draws(build("mlp", Shape((4,)), widths=[5], dropout=0.5))
    kinds = [type(layer) for layer in build("linear", Shape((4,)), width=2, activation="none").modules()]
    assert kinds == [nn.Sequential, nn.Flatten, nn.Sequential, nn.Linear]


VECTORS = "5 3\ncat 1 2 3\ndog 9 9 9\nnaïve 4 5 6\nthe -1 -2 -3.5e0\ncat 7 7 7\n"


def with_vectors(folder: Path, text: str = VECTORS, dim: int = 3) -> nn.Module:
    file = folder / "vectors.txt"
    file.write_text(text, encoding="utf-8")
    torch.manual_seed(3)
    return build("embedding", TEXT, dim=dim, vectors=file)


def test_vectors_are_in_the_rows_of_their_words(tmp_path):
    module = with_vectors(tmp_path)
    numbers = torch.tensor([[WORDS.index(word) for word in ("the", "cat", "naïve", "<pad>")]])
    assert module(numbers).tolist() == [[[-1, -2, -3.5], [1, 2, 3], [4, 5, 6], [0, 0, 0]]]


def test_a_word_without_a_vector_begins_small_and_the_same_whatever_the_file(tmp_path):
    found, none = with_vectors(tmp_path), with_vectors(tmp_path, "dog 9 9 9\n")
    for word in ("<unk>", "sat"):
        row = found.table.weight[WORDS.index(word)]
        assert torch.equal(row, none.table.weight[WORDS.index(word)]) and (row != 0).all()
    words = ("<pad>", *(f"w{number}" for number in range(2_000)))
    table = build("embedding", Shape((9,), torch.int64, words=words), dim=50).table.weight[1:].detach()
    assert abs(float(table.mean())) < 0.1 * SPREAD and abs(float(table.std()) / SPREAD - 1) < 0.05


def test_padding_is_zero_and_learns_nothing(tmp_path):
    module = with_vectors(tmp_path, VECTORS.replace("dog", "<pad>"))
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, weight_decay=0.1)
    numbers = torch.tensor([[2, 3, 0, 0], [1, 1, 4, 5]])
    for _ in range(3):
        optimizer.zero_grad()
        (module(numbers, numbers != 0) - 1).square().sum().backward()
        assert (module.table.weight.grad[0] == 0).all() and (module.table.weight.grad[1:] != 0).any()
        optimizer.step()
    assert (module.table.weight[0] == 0).all()


def test_the_meta_device_reads_the_first_vector_only(tmp_path):
    with torch.device("meta"):
        module = with_vectors(tmp_path, "the 1 2 3\ncat 1\n")
        assert module(torch.empty(2, 9, dtype=torch.int64)).shape == (2, 9, 3)
        with pytest.raises(DataError, match="3 values, but dim is 4"):
            with_vectors(tmp_path, dim=4)


def test_an_embedding_wants_words():
    with pytest.raises(SpecError, match=r"block `embedding` .* \(9, 6\)"):
        build("embedding", Shape((9, 6)), dim=3)
