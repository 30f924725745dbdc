"""The laws of compressions of messages: packed and unpacked, each sample by itself. One enters by its rows in `ALL`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from torch import nn

from alray.config.made import no_user_code
from alray.config.sections.compression import COMPRESSIONS
from alray.models.boundary import Passing
from alray.models.message_compression import MessageCompression, make_message_compression
from alray.models.network import Network
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


class Moved(nn.Module):
    alray_pooling = "channels_last"

    def __init__(self, input: Shape) -> None:
        super().__init__()

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return s.movedim(1, 3).contiguous()


OWN = """
from tests.parts.test_message_laws import Whole, Moved
"""


class Whole(MessageCompression):
    """Of the user's: values in parts of the largest one of a sample, which takes a further byte."""

    def packed(self, shape: Shape) -> Shape:
        return Shape((shape.elements, 2), shape.dtype)

    def pack(self, values: torch.Tensor) -> torch.Tensor:
        flat = values.flatten(1)
        largest = flat.abs().amax(1, keepdim=True)
        return torch.stack([(flat / largest * 4).round(), largest.expand_as(flat)], -1)

    def unpack(self, packed: torch.Tensor, shape: Shape) -> torch.Tensor:
        return (packed[..., 0] / 4 * packed[..., 1]).unflatten(1, tuple(shape))


@pytest.mark.parametrize(("kind", "keys"), [*ALL[:-1], ("int4", {"scale": "token"}), ("python:own_blocks.Whole", {})])
@pytest.mark.parametrize("maps", ["linear", "vgg", "channels_last"])
@pytest.mark.parametrize("prediction", ["goodness", "activities"])
def test_rows_with_right_and_wrong_labels_are_packed_as_samples(
    make_network: Callable[..., Network], kind: str, keys: dict[str, object], maps: str, prediction: str
) -> None:
    """A row of Forward-Forward is packed as a sample of other methods is, and takes its bytes."""
    block = {
        "linear": "{block: mlp, widths: [5]}",
        "vgg": "{block: vgg, channels: [5]}",
        "channels_last": "{block: 'python:own_blocks.Moved'}",
    }[maps]
    messages = json.dumps({"compression": {"kind": kind, **keys}})
    common = [f"model.components=[{block}, {{block: mlp, widths: [4]}}]", f"pipeline.messages={messages}"]
    rows_of = make_network(f"method={{kind: forward_forward, prediction: {prediction}}}", *common, code=OWN)
    one_of = make_network("method=decoupled_greedy", *common, code=OWN)
    passing, alone = (network.boundary(0).up for network in (rows_of, one_of))
    for training in (True, False):
        edges = [network.edge if training else network.inference_edge for network in (rows_of, one_of)]
        whole, sample = (edge(0)["s"] for edge in edges)
        assert whole[1:] == sample and whole.dtype == sample.dtype
        values = torch.randn(3, whole[0], *rows_of.encoders[0].output)
        rounded = passing.rounded({"s": values})["s"]
        each = [alone.rounded({"s": values[:, row]})["s"] for row in range(whole[0])]
        assert torch.equal(rounded, torch.stack(each, 1))
        packed = passing.pack({"s": values})
        assert packed["s"].shape[1:] == whole
        assert torch.equal(passing.unpack(packed, training=training)["s"], rounded)


@pytest.mark.parametrize("rows", [2, 5])
def test_the_end_of_a_text_is_that_of_all_its_rows(rows: int) -> None:
    """Two rows of two words had the mask of the words laid over them; other numbers of rows ended the run."""
    shapes = {"s": Shape((rows, 2, 3)), "mask": Shape((2,), torch.bool)}
    passing = Passing(made("bf16"), shapes, shapes, row_dimensions=1)
    mask = torch.tensor([[True, True], [True, False]])
    sent = {"s": torch.ones(2, rows, 2, 3), "mask": mask}
    assert torch.equal(passing.rounded(sent)["s"], mask[:, None, :, None].expand(2, rows, 2, 3).float())
    assert torch.equal(passing.unpack(passing.pack(sent), training=True)["s"], passing.rounded(sent)["s"])
