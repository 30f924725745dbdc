"""The laws of compressions of messages: packed and unpacked, each sample by itself. One enters by its rows in `ALL`."""

from __future__ import annotations

import pytest
import torch

from alray.config.made import no_user_code
from alray.config.sections.compression import COMPRESSIONS
from alray.models.message_compression import MessageCompression, make_message_compression
from alray.models.shape import Shape

LEVELS = [("int8", {"scale": scale}) for scale in ("tensor", "token")]
INT = [("int4", {}), ("int4", {"scale": "token"})]
ALL = [*LEVELS, *INT, ("bf16", {}), ("fp16", {}), ("top_k", {"fraction": 0.3}), ("none", {})]
SHAPES = [(5,), (3, 5), (3, 5, 7)]


def made(kind: str, **keys: object) -> MessageCompression:
    return make_message_compression(COMPRESSIONS.section(kind, **keys), no_user_code, key="")


def test_each_compression_of_messages_has_a_row() -> None:
    assert {kind for kind, _ in ALL} == {kind for kind, each in COMPRESSIONS.sections.items() if each.of_messages}


@pytest.mark.parametrize(("kind", "keys"), ALL)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_sample_is_packed_by_itself(kind: str, keys: dict[str, object], shape: tuple[int, ...]) -> None:
    compression, values = made(kind, **keys), torch.randn(4, *shape)
    packed = compression.pack(values)
    of_one = Shape(shape, values.dtype)
    assert (packed.shape[1:], packed.dtype) == (compression.packed(of_one), compression.packed(of_one).dtype)
    unpacked = compression.unpack(packed, of_one)
    assert unpacked.shape == values.shape and unpacked.is_contiguous()
    assert torch.equal(compression.rounded(values), unpacked)
    assert torch.equal(compression.unpack(compression.pack(values[1:2]), of_one), unpacked[1:2])


@pytest.mark.parametrize(("levels", "kind"), [(256, "int8"), (16, "int4")])
def test_levels_by_hand(levels: int, kind: str) -> None:
    """From -1 to 4: 0 is a level, and no value is further than half a step from its own."""
    values, step = torch.tensor([[-1.0, 0.0, 0.37, 2.4, 4.0]]), 5 / (levels - 1)
    found = made(kind).rounded(values)
    assert found[0, 1] == 0
    torch.testing.assert_close(found / step, (values / step).round(), rtol=0, atol=1e-4)


def test_a_position_and_a_sample_have_scales() -> None:
    """A large value takes the small ones next to it with it, and no others."""
    values = torch.full((1, 3, 4), 0.01)
    values[0, 1, 2] = 100.0
    lost = {scale: made("int4", scale=scale).rounded(values) == 0 for scale in ("tensor", "token")}
    others = torch.ones(3, 4, dtype=torch.bool)
    others[1, 2] = False
    assert torch.equal(lost["tensor"][0], others)
    assert lost["token"][0].nonzero().tolist() == [[1, 0], [1, 1], [1, 3]]
