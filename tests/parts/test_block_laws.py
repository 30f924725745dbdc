"""The laws of blocks. A block enters by a line of `ROWS`: its keys, the shape of a sample, and that of its output."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from alray.config.sections.blocks import BLOCKS
from alray.core.errors import SpecError
from alray.models.shape import Shape

from ..models.built import builder

WORDS = ("<pad>", "<unk>", "the", "cat", "sat", "naïve")
TEXT = Shape((9,), torch.int64, words=WORDS)
TOKENS = Shape((9,), torch.int64, tokens=11)
IMAGE, SEQUENCE, ROW = Shape((3, 5, 7)), Shape((9, 6)), Shape((6,))
ROWS: dict[str, tuple[dict[str, Any], Shape, tuple[int, ...]]] = {
    "vgg": ({"channels": [4, 5]}, IMAGE, (5, 5, 7)),
    "vgg with a pool": ({"channels": [4], "pool": True}, IMAGE, (4, 2, 3)),
    "stem": ({"channels": 4}, IMAGE, (4, 5, 7)),
    "residual": ({"channels": 3, "layers": 2}, IMAGE, (3, 5, 7)),
    "residual with a stride": ({"channels": 6, "layers": 2, "stride": 2, "shortcut": "1x1"}, IMAGE, (6, 3, 4)),
    "embedding": ({"dim": 4}, TEXT, (9, 4)),
    "embedding of tokens": ({"dim": 4}, TOKENS, (9, 4)),
    "transformer": ({"heads": 3, "feedforward": 5, "dropout": 0.3}, SEQUENCE, (9, 6)),
    "transformer of tokens": ({"heads": 2, "feedforward": 5, "dim": 4, "causal": True, "layers": 2}, TOKENS, (9, 4)),
    "transformer by swiglu": (
        {"heads": 3, "feedforward": 5, "causal": True, "norm": "rms", "positions": "rotary", "activation": "swiglu"},
        SEQUENCE,
        (9, 6),
    ),
    "lstm": ({"hidden": 4}, SEQUENCE, (9, 8)),
    "lstm of one direction": ({"hidden": 4, "bidirectional": False}, SEQUENCE, (9, 4)),
    "lstm of two layers": ({"hidden": 4, "layers": 2}, SEQUENCE, (9, 8)),
    "linear": ({"width": 4, "activation": "sigmoid"}, SEQUENCE, (9, 4)),
    "linear of images": ({"width": 4}, IMAGE, (4,)),
    "mlp": ({"widths": [5, 4], "dropout": 0.3}, SEQUENCE, (9, 4)),
    "mlp of rows": ({"widths": [5, 4]}, ROW, (4,)),
}
PADDED = ("transformer", "lstm", "lstm of one direction", "lstm of two layers", "linear", "mlp")
"""Those that take a mask."""
every = pytest.mark.parametrize("name", ROWS)
of_padded = pytest.mark.parametrize("name", PADDED)


def test_every_block_has_a_row() -> None:
    assert {name.split()[0] for name in ROWS} == BLOCKS.sections.keys()


def build(name: str, input: Shape | None = None) -> nn.Module:
    torch.manual_seed(3)
    fields, own, _ = ROWS[name]
    return builder(name.split()[0])(input or own, **fields).eval()


def samples(name: str, count: int = 4) -> torch.Tensor:
    shape, numbers = ROWS[name][1], torch.Generator().manual_seed(7)
    if shape.dtype.is_floating_point:
        return torch.randn(count, *shape, generator=numbers)
    return torch.randint(1, shape.tokens or len(WORDS), (count, *shape), generator=numbers)


@every
def test_a_row_has_the_shape_that_is_stated_and_depends_on_no_other(name: str) -> None:
    block, s = build(name), samples(name)
    together = block(s)
    assert together.shape == (4, *ROWS[name][2])
    for row in range(4):
        torch.testing.assert_close(block(s[row : row + 1])[0], together[row], atol=1e-5, rtol=1e-5)
    assert torch.equal(build(name)(s), together), "the seed decides the weights"


@every
def test_every_weight_learns_and_nothing_is_written_on_the_input(name: str) -> None:
    block, s = build(name).train(), samples(name)
    before, version = s.clone(), s._version
    if s.is_floating_point():
        s.requires_grad_()
    torch.manual_seed(0)
    block(s).square().sum().backward()
    assert torch.equal(s, before) and s._version == version
    for parameter in block.parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.any()


@every
def test_the_meta_device_gives_the_same_shapes(name: str) -> None:
    fields, input, output = ROWS[name]
    with torch.device("meta"):
        shadow = builder(name.split()[0])(input, **fields)
    given = shadow(samples(name).to("meta"))
    assert given.is_meta and given.shape == (4, *output)
    own = {key: value.shape for key, value in build(name).state_dict().items()}
    assert own == {key: value.shape for key, value in shadow.state_dict().items()}


def ragged(*lengths: int, positions: int, width: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of random values, with garbage at padded positions: no block may look at it."""
    generator = torch.Generator().manual_seed(7)
    s = torch.full((len(lengths), positions, width), 1.0e3)
    mask = torch.zeros(len(lengths), positions, dtype=torch.bool)
    for row, length in enumerate(lengths):
        s[row, :length] = torch.randn(length, width, generator=generator)
        mask[row, :length] = True
    return s, mask


@of_padded
def test_a_row_does_not_depend_on_the_padding(name: str) -> None:
    block, lengths = build(name), (3, 7, 1, 5)
    s, mask = ragged(*lengths, positions=7)
    together = block(s, mask)
    for row, length in enumerate(lengths):
        alone = block(s[row : row + 1, :length])
        assert torch.allclose(together[row, :length], alone[0], atol=1e-5)
        assert (together[row, length:] == 0).all()
    longer, longer_mask = ragged(*lengths, positions=9)
    padded_on = block(longer, longer_mask)
    assert torch.allclose(padded_on[:, :7], together, atol=1e-5) and (padded_on[:, 7:] == 0).all()
    full, of_all = ragged(5, 5, positions=5)
    assert torch.allclose(block(full, of_all), block(full), atol=1e-6)


@of_padded
def test_padding_gets_no_gradient(name: str) -> None:
    block = build(name).train()
    s, mask = ragged(3, 7, positions=7)
    s.requires_grad_()
    block(s, mask).square().sum().backward()
    assert (s.grad[~mask] == 0).all() and (s.grad[mask] != 0).any()
    assert all(parameter.grad.isfinite().all() for parameter in block.parameters())


@every
def test_an_input_of_another_form_is_refused(name: str) -> None:
    kind, own = name.split()[0], ROWS[name][1]
    others = {"vgg": SEQUENCE, "stem": SEQUENCE, "residual": SEQUENCE, "embedding": IMAGE, "lstm": IMAGE}
    other = others.get(kind, TEXT if own is not TOKENS else IMAGE)
    with pytest.raises(SpecError, match=f"block `{kind}` "):
        build(name, other)
