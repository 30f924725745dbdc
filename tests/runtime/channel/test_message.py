"""Messages in a flat buffer: what is packed is what is read, whatever lay there before."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alray.core.errors import MessageError
from alray.runtime.channel.message import ALIGNMENT, HEADER_BYTES, Message, MessageKind, Slot, aligned, packed_bytes

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]
NAMES = ["s", "t", "labels", "mask", "route", "c", "of sixteen bytes", "~"]
SHAPES = st.lists(st.integers(0, 4), max_size=6).map(tuple)


def filled(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    numbers = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2 if dtype is torch.bool else 100, shape, generator=numbers).to(dtype)


def dirty(nbytes: int) -> torch.Tensor:
    return torch.full((nbytes,), 255, dtype=torch.uint8)


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)


def check_round_trip(message: Message) -> None:
    expected = packed_bytes([tensor.numel() * tensor.element_size() for tensor in message.tensors.values()])
    buffer = dirty(expected)
    assert Slot(buffer).write(message, edge="0->1") == expected
    read = Slot(buffer).read(edge="0->1")
    assert (read.kind, read.step, read.flags, read.count) == (message.kind, message.step, message.flags, message.count)
    assert list(read.tensors) == list(message.tensors)
    assert all(same(read.tensors[name], tensor) for name, tensor in message.tensors.items())
    for tensor in read.tensors.values():
        assert tensor.stride() == torch.empty(tensor.shape).stride()
        assert tensor.numel() == 0 or tensor.data_ptr() % ALIGNMENT == 0


@settings(max_examples=60)
@given(
    kind=st.sampled_from(MessageKind),
    step=st.integers(0, 2**40),
    flags=st.integers(0, 7),
    count=st.integers(0, 1000),
    tensors=st.dictionaries(st.sampled_from(NAMES), st.tuples(SHAPES, st.sampled_from(DTYPES))),
)
def test_round_trip(kind, step, flags, count, tensors):
    made = {name: filled(shape, dtype, seed) for seed, (name, (shape, dtype)) in enumerate(tensors.items())}
    check_round_trip(Message(kind, step, made, flags=flags, count=count))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3), (1, 2, 1, 3, 1, 2)])
def test_every_type_and_number_of_dimensions(dtype, shape):
    check_round_trip(Message(MessageKind.TRAIN, 1, {"s": filled(shape, dtype), "t": filled((3,), dtype, 1)}))


def test_all_names_at_once_fit_the_header():
    check_round_trip(Message(MessageKind.TRAIN, 1, {name: filled((1,) * 6, torch.int64) for name in NAMES}))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last),
        torch.randn(3, 5).t(),
        torch.randn(8)[::2],
        torch.randn(1).expand(6),
    ],
)
def test_other_strides_arrive_row_major(tensor):
    check_round_trip(Message(MessageKind.EVALUATE, 0, {"s": tensor}))


def test_values_that_are_no_numbers_keep_their_bits():
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45])
    buffer = dirty(1024)
    Slot(buffer).write(Message(MessageKind.TRAIN, 1, {"s": special}), edge="0->1")
    assert torch.equal(Slot(buffer).read(edge="0->1").tensors["s"].view(torch.int32), special.view(torch.int32))


def test_a_shorter_message_over_a_longer_one():
    buffer = dirty(2048)
    Slot(buffer).write(Message(MessageKind.TRAIN, 1, {"s": torch.ones(2, 9, 3), "mask": torch.ones(2, 9)}), edge="0->1")
    Slot(buffer).write(Message(MessageKind.TRAIN, 2, {"s": torch.zeros(2, 4, 3)}), edge="0->1")
    read = Slot(buffer).read(edge="0->1")
    assert list(read.tensors) == ["s"] and same(read.tensors["s"], torch.zeros(2, 4, 3))


def test_one_slot_for_messages_of_changing_layouts_each_seen_as_it_is():
    buffer = dirty(4096)
    written, read = Slot(buffer), Slot(buffer)
    shapes = [(2, 3), (2, 3), (2, 5), (2, 3), (), (0, 4), (2, 3)]
    for step, shape in enumerate(shapes):
        dtype = torch.float64 if step == 3 else torch.float32
        tensors = {"s": filled(shape, dtype, step), "labels": filled((2,), torch.int64, step)}
        message = Message(MessageKind.TRAIN, step, tensors)
        nbytes = written.write(message, edge="0->1")
        came = read.read(edge="0->1")
        assert (came.step, read.nbytes) == (step, nbytes)
        assert all(same(came.tensors[name], tensor) for name, tensor in message.tensors.items())


def test_what_a_reader_does_to_a_tensor_s_shape_is_not_seen_by_the_next_one():
    buffer = dirty(1024)
    written, read = Slot(buffer), Slot(buffer)
    for step in (1, 2):
        written.write(Message(MessageKind.TRAIN, step, {"s": torch.full((3,), float(step))}), edge="0->1")
        s = read.read(edge="0->1").tensors["s"]
        assert s.shape == (3,) and not s.requires_grad and s.tolist() == [step] * 3
        s.unsqueeze_(0).requires_grad_()


def test_tensors_are_views_of_the_buffer():
    buffer = dirty(1024)
    Slot(buffer).write(Message(MessageKind.TRAIN, 1, {"s": torch.zeros(3)}), edge="0->1")
    read = Slot(buffer).read(edge="0->1")
    buffer.fill_(0)
    Slot(buffer).write(Message(MessageKind.TRAIN, 1, {"s": torch.ones(3)}), edge="0->1")
    assert read.tensors["s"].tolist() == [1.0, 1.0, 1.0]


def test_a_message_that_just_fits_and_one_that_does_not():
    fits = packed_bytes([16 * 4])
    assert Slot(dirty(fits)).write(Message(MessageKind.TRAIN, 3, {"s": torch.zeros(16)}), edge="1->2") == fits
    buffer = dirty(fits)
    with pytest.raises(MessageError) as caught:
        Slot(buffer).write(Message(MessageKind.EVALUATE, 3, {"s": torch.zeros(17)}), edge="1->2")
    message = str(caught.value)
    assert message.startswith("edge 1->2: ") and f"{fits + 64} bytes" in message and f"for {fits};" in message
    assert bool((buffer == 255).all()), "nothing is written of a message that does not fit"


@pytest.mark.parametrize("name", ["of seventeen byte", "längen", ""])
def test_a_name_that_the_header_cannot_hold(name):
    with pytest.raises(MessageError, match="1 to 16 ASCII characters"):
        Slot(dirty(1024)).write(Message(MessageKind.TRAIN, 1, {name: torch.zeros(2)}), edge="0->1")


def test_more_tensors_than_the_header_has_entries_for():
    tensors = {f"t{number}": torch.zeros(1) for number in range(9)}
    with pytest.raises(MessageError, match="9 tensors"):
        Slot(dirty(4096)).write(Message(MessageKind.TRAIN, 1, tensors), edge="0->1")


@pytest.mark.parametrize(("nbytes", "expected"), [(0, 0), (1, 64), (64, 64), (65, 128)])
def test_alignment(nbytes, expected):
    assert aligned(nbytes) == expected and HEADER_BYTES % ALIGNMENT == 0
