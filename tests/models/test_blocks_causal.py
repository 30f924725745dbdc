"""Causal Transformers: what a position sees, and the equations of their parts."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional

from alray.core.errors import SpecError
from alray.models.causal import rotated, rotation
from alray.models.shape import Shape
from alray.parts.blocks.transformer.block import EncoderLayer, build

TOKENS = Shape((6,), torch.int64, tokens=11)
VECTORS = Shape((6, 8))


def causal(input: Shape = TOKENS, **keys: object) -> torch.nn.Module:
    torch.manual_seed(0)
    return build(input, heads=2, feedforward=12, dim=8, causal=True, **keys)


@pytest.mark.parametrize(
    ("norm", "norm_at", "positions", "activation"),
    [*itertools.product(["rms"], ["pre", "post"], ["rotary"], ["swiglu"]), ("layer", "pre", "learned", "gelu")],
)
def test_a_position_sees_itself_and_those_before(norm, norm_at, positions, activation) -> None:
    block = causal(norm=norm, norm_at=norm_at, positions=positions, activation=activation, layers=2)
    tokens = torch.arange(6).unsqueeze(0)
    changed = tokens.clone()
    changed[0, 3] = 9
    before, after = block(tokens), block(changed)
    assert torch.equal(before[:, :3], after[:, :3])
    assert all(not torch.allclose(before[:, place], after[:, place]) for place in range(3, 6))
    torch.testing.assert_close(block(tokens[:, :4]), before[:, :4])


def test_positions_matter_where_there_are_any() -> None:
    """Where there are none, the last position gets the same of any order of those before it."""
    turned = torch.tensor([[3, 1, 2, 4]]), torch.tensor([[2, 3, 1, 4]])
    for positions, differ in (("none", False), ("rotary", True), ("learned", True)):
        first, second = (causal(positions=positions)(tokens)[:, -1] for tokens in turned)
        assert torch.allclose(first, second, atol=1e-6) != differ


def test_rotary_products_depend_on_the_distance() -> None:
    turn = rotation(9, 4)
    query, key = torch.randn(4).double(), torch.randn(4).double()
    rows = [rotated(vector.expand(1, 1, 9, 4), turn)[0, 0] for vector in (query, key)]
    products = rows[0] @ rows[1].T
    for distance in range(-8, 9):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[0].expand_as(diagonal))
    torch.testing.assert_close(products[0, 0], query @ key)


def test_the_parts_are_those_of_the_equations() -> None:
    layer = causal(VECTORS, norm="rms", activation="swiglu", bias=False).layers[0]
    x = torch.randn(2, 6, 8)
    net = layer.feedforward
    by_hand = (functional.silu(x @ net.gate.weight.T) * (x @ net.input.weight.T)) @ net.output.weight.T
    torch.testing.assert_close(net(x), by_hand)
    normed = x / (x.square().mean(2, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(layer.attention_norm(x), normed)
    torch.testing.assert_close(layer(x), (y := x + layer.attention(normed)) + net(layer.feedforward_norm(y)))
    post = causal(VECTORS, norm_at="post").layers[0]
    y = post.attention_norm(x + post.attention(x))
    torch.testing.assert_close(post(x), post.feedforward_norm(y + post.feedforward(y)))
    assert not any("bias" in name for name, _ in layer.named_parameters())


def test_without_causal_it_is_the_encoder_layer() -> None:
    assert isinstance(build(VECTORS, heads=2, feedforward=12), EncoderLayer)


@pytest.mark.parametrize(
    "make",
    [
        lambda: build(TOKENS, heads=2, feedforward=12, causal=True),
        lambda: build(TOKENS, heads=2, feedforward=12, dim=8),
        lambda: build(VECTORS, heads=8, feedforward=12, causal=True, positions="rotary"),
    ],
)
def test_what_does_not_fit_is_refused(make) -> None:
    with pytest.raises(SpecError):
        make()
