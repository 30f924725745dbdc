"""Who waits for whom, on a GPU: the host for copies, a stream for another one, and nobody longer than needed.

On the simulated device each wait that is missing is found, whatever the timing. A real GPU shows that the bits come
out right.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.config.sections.compression import COMPRESSIONS
from alray.core import accelerator
from alray.core.errors import RunError
from alray.data.batches import Batch
from alray.runtime.channel.all_reduce import make_all_reduce
from alray.runtime.channel.compression import make_compression
from alray.runtime.channel.gradient_layout import GradientLayout
from alray.runtime.channel.gradient_reducer import CommunicationThread, GradientReducer
from alray.runtime.channel.message import Message, MessageKind
from alray.runtime.channel.pinned import Pinned
from alray.runtime.channel.point_to_point import PointToPointReceiver, PointToPointSender
from alray.runtime.channel.shared_memory import SharedMemoryReceiver, SharedMemorySender
from alray.runtime.device.devices import configured
from alray.runtime.device.memory_used import memory_baseline, peak_memory_bytes
from alray.runtime.device.out_of_memory import is_out_of_memory
from alray.runtime.graph.processes import StageProcess
from alray.runtime.probe import timing
from alray.runtime.probe.all_reduce import time_reduction
from alray.runtime.probe.timing import LEAST_REPEATS, ROUNDS_AHEAD, WARM_UPS, ProbedAction, Timing, time_actions
from alray.runtime.stage.assemble import feed
from alray.runtime.stage.gpu_times import GpuTimes, MeasuredAction
from alray.runtime.stage.reduction import RowGather
from alray.runtime.stage.stage import Stage

from ..engine.conftest import Workshop
from ..runtime.channel.conftest import driven
from .conftest import GPU, ON_GPU, SIMULATED, host_waits

STEPS = 6


def whole(step: int, device: torch.device) -> dict[str, torch.Tensor]:
    values = torch.arange(12.0, device=device).view(3, 4) + step
    return {"s": values * 2, "mask": values > 3, "labels": values.long()[:, 0]}


def test_the_feed_copies_ahead_and_the_host_does_not_wait() -> None:
    batches = [
        Batch(step, torch.randn(64, 32), torch.arange(64), torch.ones(64, 32, dtype=torch.bool))
        for step in range(STEPS)
    ]
    pinned = [each.pin_memory() for each in batches]
    first = pinned[0]
    assert first.mask is not None
    assert first.samples.is_pinned() and first.labels.is_pinned() and first.mask.is_pinned()
    products, labels, stream = [], [], accelerator.own_stream(GPU)
    waits = host_waits()
    for step, (batch, tensors) in enumerate(feed(pinned, lambda each: each.with_labels(GPU, torch.float32), stream)):
        assert batch.step == step and tensors["s"].device == GPU
        if SIMULATED:
            assert tensors["s"].block.stream is not accelerator.current_stream(
                GPU
            )  # it is copied beside the computation
        products.append(tensors["s"] @ tensors["s"].t())
        labels.append((tensors["labels"] + 1) * tensors["mask"][:, 0])
    assert host_waits() == waits
    for batch, product, label in zip(batches, products, labels, strict=True):
        assert torch.allclose(product.cpu(), batch.samples @ batch.samples.t(), rtol=1e-2, atol=1e-2)
        assert torch.equal(label.cpu(), batch.labels + 1)


def over_shared_memory(in_flight: int = 1) -> tuple[SharedMemorySender, SharedMemoryReceiver]:
    sender = SharedMemorySender(edge="0->1", capacity_bytes=4096, in_flight=in_flight, timeout_s=20.0, device=GPU)
    return sender, SharedMemoryReceiver(edge="0->1", ring=sender.ring, device=GPU, timeout_s=20.0)


def exchange(sender: Any, receiver: Any) -> list[dict[str, torch.Tensor]]:
    """Messages from a GPU to a GPU, in one part and in two; each is used before its buffer goes back."""
    came = []

    def send() -> None:
        accelerator.use(GPU)
        for step in range(STEPS):
            tensors = whole(step, GPU)
            if step % 2:
                first = {name: tensors[name] for name in ("s", "mask")}
                driven(sender.begin(Message(MessageKind.TRAIN, step, first)))
            driven(sender.send(Message(MessageKind.TRAIN, step, tensors)))
        driven(sender.flush())

    sending = threading.Thread(target=send)
    sending.start()
    for step in range(STEPS):
        message = driven(receiver.receive())
        driven(receiver.complete(message))
        assert message.step == step and all(tensor.device == GPU for tensor in message.tensors.values())
        came.append({name: tensor.clone() for name, tensor in message.tensors.items()})
        receiver.release(message)
    sending.join()
    return came


def require_whole(came: list[dict[str, torch.Tensor]]) -> None:
    for step, tensors in enumerate(came):
        expected = whole(step, torch.device("cpu"))
        assert list(tensors) == list(expected)
        assert all(torch.equal(tensors[name].cpu(), value) for name, value in expected.items())


def test_messages_through_shared_memory() -> None:
    sender, receiver = over_shared_memory()
    buffers = [sender._slots[0]._buffer, receiver._slots[0]._buffer]
    assert all(buffer.is_pinned() for buffer in buffers)
    require_whole(exchange(sender, receiver))
    receiver.close()
    sender.close()
    assert not any(buffer.is_pinned() for buffer in buffers)


def over_gloo(on_ranks: Callable[..., list[Any]]) -> tuple[PointToPointSender, PointToPointReceiver]:
    accelerator.use(GPU)

    def work(rank: int, group: Any) -> Any:
        if rank == 0:
            return PointToPointSender(
                edge="0->1",
                peer=1,
                tag=1,
                capacity_bytes=4096,
                rest_bytes=4096,
                group=group,
                timeout_s=20.0,
                device=GPU,
            )
        return PointToPointReceiver(
            edge="0->1",
            peer=0,
            tag=1,
            capacity_bytes=4096,
            rest_bytes=4096,
            in_flight=1,
            group=group,
            timeout_s=20.0,
            device=GPU,
        )

    sender, receiver = on_ranks(2, work)
    return sender, receiver


def test_messages_through_gloo(on_ranks: Callable[..., list[Any]]) -> None:
    sender, receiver = over_gloo(on_ranks)
    assert sender._rest is not None and receiver._rest is not None
    for end in (sender._first, sender._rest, receiver._first, receiver._rest):
        assert all(buffer.is_pinned() for buffer in end._buffers)
    require_whole(exchange(sender, receiver))


@pytest.mark.skipif(not SIMULATED, reason="a real GPU copies too fast to be seen")
def test_a_message_is_handed_on_when_the_gpu_has_written_it() -> None:
    """The neighbour's process reads at once. The host waits once for a message, not for each tensor."""
    sender, receiver = over_shared_memory()
    tensors, waits = whole(1, GPU), host_waits()
    driven(sender.send(Message(MessageKind.TRAIN, 1, tensors)))
    assert host_waits() == waits + 1
    read = sender._slots[-1].first.read(edge="0->1")
    assert torch.equal(read.tensors["s"], whole(1, torch.device("cpu"))["s"])
    receiver.close()
    sender.close()


@pytest.mark.skipif(not SIMULATED, reason="a real GPU copies too fast to be seen")
@pytest.mark.parametrize("edge", ["shared memory", "gloo"])
def test_buffers_go_back_when_the_gpu_has_read_both_parts(on_ranks: Callable[..., list[Any]], edge: str) -> None:
    """The neighbour's process writes into them at once. The host does not wait before."""
    sender, receiver = over_shared_memory() if edge == "shared memory" else over_gloo(on_ranks)
    tensors = whole(1, GPU)
    driven(sender.begin(Message(MessageKind.TRAIN, 1, {name: tensors[name] for name in ("s", "mask")})))
    driven(sender.send(Message(MessageKind.TRAIN, 1, tensors)))
    waits = host_waits()
    message = driven(receiver.receive())
    driven(receiver.complete(message))
    assert host_waits() == waits
    kept = dict(message.tensors)
    receiver.release(message)
    assert host_waits() > waits
    if isinstance(receiver, SharedMemoryReceiver):
        buffers = [slot._buffer for slot in receiver._slots]
    else:
        assert receiver._rest is not None
        buffers = [*receiver._first._buffers, *receiver._rest._buffers]
    for buffer in buffers:
        buffer.fill_(0)  # as the next message does
    accelerator.wait_for_all(GPU)
    assert all(torch.equal(kept[name].cpu(), value) for name, value in whole(1, torch.device("cpu")).items())


@pytest.mark.skipif(not SIMULATED, reason="a real GPU would end this process")
def test_memory_is_pinned_until_it_is_closed() -> None:
    memory = torch.zeros(4096, dtype=torch.uint8)
    pinned = Pinned(memory, GPU)
    assert memory[64:].is_pinned()
    pinned.close()
    pinned.close()
    assert not memory.is_pinned()


def test_buffers_of_messages_are_pinned() -> None:
    assert (
        accelerator.host_buffer(64, GPU).is_pinned()
        and not accelerator.host_buffer(64, torch.device("cpu")).is_pinned()
    )


def test_a_process_that_is_kept_for_the_next_trial_gives_memory_back() -> None:
    gc.collect()
    process, before = StageProcess(), torch.accelerator.memory_reserved(0)
    process._stage = referring_to_itself()
    gc.freeze()  # as the loop of a stage does
    assert torch.accelerator.memory_reserved(0) - before > 30_000_000
    process.forget()
    assert torch.accelerator.memory_reserved(0) - before < 30_000_000


def referring_to_itself() -> Any:
    """40 MB of the GPU, which only a collection of garbage frees."""
    held = SimpleNamespace(close=lambda: None, weights=torch.zeros(40_000_000, dtype=torch.uint8, device=GPU))
    held.itself = held
    return held


def test_what_a_measurement_in_this_process_held_goes_back() -> None:
    """The stage of another process may need it."""
    gc.collect()
    before = torch.accelerator.memory_reserved(0)
    with configured(1, True, GPU):
        referring_to_itself()
        assert torch.accelerator.memory_reserved(0) - before > 30_000_000
    assert torch.accelerator.memory_reserved(0) - before < 30_000_000


@pytest.mark.skipif(not SIMULATED, reason="a tiny run takes less of a real GPU than cuBLAS does")
def test_what_a_run_in_this_process_held_goes_back(workshop: Workshop) -> None:
    """Weights and what refers to them too."""
    gc.collect()
    accelerator.free_unused_memory()
    before = torch.accelerator.memory_reserved(0)
    run = workshop.run(*ON_GPU, "pipeline.stages=1", "run={steps: 2}")
    assert run.error is None and torch.accelerator.memory_reserved(0) <= before


@pytest.mark.skipif(not SIMULATED, reason="a tiny run takes less of a real GPU than cuBLAS does")
@pytest.mark.parametrize("wrapped", [False, True])
def test_what_a_run_that_failed_held_goes_back(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, wrapped: bool
) -> None:
    """Its error stays, as in a study, and with it went what the failed functions held."""

    def compute() -> None:
        held = torch.zeros(40_000_000, dtype=torch.uint8, device=GPU)
        kind = RuntimeError if wrapped else torch.OutOfMemoryError  # `configured` lets go of the second one alone
        raise kind(f"no room beside {held.nbytes} bytes")

    def fails(*arguments: Any) -> Any:
        try:
            compute()
        except RuntimeError as error:
            if wrapped:
                raise RunError("the block has failed") from error
            raise

    gc.collect()
    accelerator.free_unused_memory()
    before = torch.accelerator.memory_reserved(0)
    monkeypatch.setattr(Stage, "mini_batch", fails)
    run = workshop.run(*ON_GPU, "pipeline.stages=1", "run={steps: 2}")
    assert run.error is not None and ("has failed" if wrapped else "memory") in str(run.error)
    assert torch.accelerator.memory_reserved(0) <= before


def test_a_run_takes_few_streams(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA has 32 of a device: the next one would be one that somebody has, and what waits there would hold it up."""
    made = []

    def own_stream(device: torch.device) -> torch.Stream | None:
        made.append(device)
        return before(device)

    before = accelerator.own_stream
    monkeypatch.setattr(accelerator, "own_stream", own_stream)
    balanced = "replicas={count: 2, balance: dynamic_batch_size}"
    assert workshop.run(*ON_GPU, "pipeline.stages=1", balanced, "run={epochs: 4}").error is None
    assert len(made) == 4  # of each replica one for mini-batches, and one for gradients


@pytest.mark.parametrize("kind", ["none", "fp16"])
def test_gradients_are_averaged_beside_the_computation(on_ranks: Callable[..., list[Any]], kind: str) -> None:
    """The thread for communication waits until gradients are packed, and the stage until they are summed."""

    def work(rank: int, group: Any) -> list[torch.Tensor]:
        accelerator.use(GPU)
        gradients = [torch.full((5, 3), rank + 1.0, device=GPU), None, torch.ones(2, device=GPU) * rank]
        layout = GradientLayout((torch.Size((5, 3)), torch.Size((4,)), torch.Size((2,))), device=GPU)
        with CommunicationThread(GPU) as thread:
            over = make_all_reduce(ALL_REDUCES.section("ring"), group, timeout_s=20.0)
            compression = make_compression(COMPRESSIONS.section(kind), layout)
            reducer = GradientReducer(layout=layout, over=over, compression=compression, thread=thread, may_lack=True)
            found = []
            for _ in range(3):
                reducer.start(gradients, 0.5)
                busy = torch.ones(16, device=GPU) * 2  # the stage goes on
                averaged = reducer.wait()
                if SIMULATED:  # they are summed beside the computation
                    assert reducer._stream is not None and reducer._stream.number in reducer._flat.block.used
                found += [value.clone() for value in averaged if value is not None]
                assert averaged[1] is None and busy.shape == (16,)
                for value, gradient in zip(averaged, gradients, strict=True):
                    if gradient is not None and value is not None:
                        gradient.copy_(value).add_(1.0)
        return [value.cpu() for value in found]

    first, second = on_ranks(2, work)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert torch.equal(first[0], torch.full((5, 3), 1.5)) and torch.equal(first[1], torch.full((2,), 0.5))


def test_rows_are_gathered_from_a_gpu(on_ranks: Callable[..., list[Any]]) -> None:
    rows = torch.arange(12.0).view(6, 2)

    def work(rank: int, group: Any) -> torch.Tensor:
        accelerator.use(GPU)
        with CommunicationThread(GPU) as thread:
            gather = RowGather(make_all_reduce(ALL_REDUCES.section("ring"), group, timeout_s=20.0), thread)
            own = rows[rank * 3 : rank * 3 + 3].to(GPU)
            gather.start(own, [3, 3])
            own.zero_()
            return gather.wait()

    assert all(torch.equal(found, rows) for found in on_ranks(2, work))


def test_rows_of_a_gpu_over_gloo(on_ranks: Callable[..., list[Any]]) -> None:
    """They come back to where the rank's own row is."""
    rows = torch.arange(6.0).view(2, 3)

    def work(rank: int, group: Any) -> torch.Tensor:
        accelerator.use(GPU)
        found = make_all_reduce(ALL_REDUCES.section("ring"), group, timeout_s=20.0).gather(rows[rank].to(GPU))
        assert found.device == GPU
        return found.cpu()

    assert all(torch.equal(found, rows) for found in on_ranks(2, work))


def test_times_of_a_gpu_are_asked_for_when_they_are_known() -> None:
    accelerator.use(GPU)
    waits = host_waits()
    times = GpuTimes(partial(accelerator.recorded, GPU, timed=True))
    if SIMULATED:
        assert host_waits() == waits + 1  # the clocks are compared when the GPU has nothing to do
    began = time.perf_counter()
    size = 64 if SIMULATED else 8192  # a GPU has small products before the host asks
    for step in range(3):
        times.begin(computes=True)
        torch.ones(size, size, device=GPU) @ torch.ones(size, size, device=GPU)
        times.end(MeasuredAction("F", f"F{step}", step, False), time.perf_counter(), time.perf_counter())
    times.begin(computes=False)
    times.end(MeasuredAction("receive_wait", "receive_wait", 3, False), time.perf_counter(), time.perf_counter())
    assert len(list(times.passed(wait=False))) < 4
    assert times._intervals[-1].events is None  # the host's own time
    zero, found = times._zero, list(times.passed(wait=True))
    assert times._zero is not zero  # the clocks drift apart, so they are compared again
    assert found[-1][0].kind == "receive_wait"
    assert all(began - 0.01 < start <= end < time.perf_counter() + 0.01 for _, start, end in found)
    assert [start for _, start, _ in found] == sorted(start for _, start, _ in found)


def test_the_probe_waits_for_what_it_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host only gives the GPU its work. After each action it waits; then for the end of each round alone."""
    monkeypatch.setattr(timing, "is_steady", lambda times: True)
    actions, rounds = ("forward_s", "backward_s"), WARM_UPS + LEAST_REPEATS
    waited: list[int] = []

    def timed_on(device: torch.device) -> list[int]:
        """How often the host waited between an action and the next one."""
        result = torch.zeros(64, 64, device=device)

        def act() -> None:
            waited.append(host_waits())
            result.add_(1.0)

        waited.clear()
        timed = time_actions([ProbedAction(0, name, act) for name in actions], Timing(device=device))
        assert timed[0].wall_s > 0 and set(timed[0].seconds) == set(actions)
        return [later - earlier for earlier, later in pairwise([*waited, host_waits()])]

    waits = timed_on(GPU)
    assert len(waits) == 2 * (rounds + ROUNDS_AHEAD)
    if SIMULATED:
        assert waits == [1, 1] * rounds + [0, 1] * ROUNDS_AHEAD
    assert timed_on(torch.device("cpu")) == [0, 0] * rounds


@pytest.mark.parametrize("has_room", [True, False])
def test_sums_for_which_the_gpu_has_no_room_are_measured_on_the_processor(
    make_network: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, has_room: bool
) -> None:
    """All ranks of the measurement share the first GPU. In the run each has one of its own."""
    on: set[str] = set()
    start = GradientReducer.start

    def noted(self: GradientReducer, gradients: Any, *arguments: Any, **named: Any) -> None:
        on.update(each.device.type for each in gradients)
        start(self, gradients, *arguments, **named)

    monkeypatch.setattr(GradientReducer, "start", noted)
    if not has_room:
        monkeypatch.setattr("alray.runtime.probe.all_reduce.free_memory_bytes", lambda device: 1000)
    network = make_network("replicas.count=2")
    assert time_reduction(network.component(0, GPU), network.spec.replicas, accumulate=1) > 0
    assert on == {GPU.type if has_room else "cpu"}


def test_memory_is_that_of_the_allocator() -> None:
    before = memory_baseline(GPU)
    assert before is not None
    large = torch.zeros(8_000_000, dtype=torch.uint8, device=GPU)
    del large
    assert 8_000_000 <= peak_memory_bytes(GPU, before) < 16_000_000
    assert memory_baseline(GPU) == before
    assert peak_memory_bytes(GPU, before) < 8_000_000


def test_first_kernels_have_run_before_memory_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its first matrix product cuBLAS takes a workspace, which is not the stage's."""
    multiplied: list[torch.device] = []
    multiply = nn.functional.linear
    monkeypatch.setattr(
        "torch.nn.functional.linear", lambda s, *named: (multiplied.append(s.device), multiply(s, *named))[1]
    )
    memory_baseline(GPU)
    assert multiplied == [GPU]


def test_a_gpu_that_is_full() -> None:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(2**44, dtype=torch.uint8, device=GPU)
    assert is_out_of_memory(caught.value)


def test_the_memory_of_the_smallest_gpu() -> None:
    free, total = torch.accelerator.get_memory_info(0)
    assert 0 < free <= total and 0 < accelerator.least_memory_bytes() <= total
