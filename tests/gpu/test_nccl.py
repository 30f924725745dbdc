"""Messages and sums from GPU to GPU. Between simulated devices a stand-in keeps NCCL's rules; `test_on_ray.py` has
NCCL itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from alray.config.loading.load import load_spec
from alray.config.made import no_user_code
from alray.config.sections.all_reduce import ALL_REDUCES
from alray.core import accelerator
from alray.core.errors import ChannelError
from alray.runtime.channel.all_reduce import all_reduce_class
from alray.runtime.channel.in_process import Queue
from alray.runtime.channel.message import Message, MessageKind
from alray.runtime.channel.nccl import NcclReceiver, NcclSender
from alray.runtime.stage.reduction import ReducedReplication
from alray.runtime.stage.replication import ReplicaPeers

from ..runtime.channel.conftest import driven
from ..simulated import nccl
from ..simulated.nccl import Group, Wire
from .conftest import GPU, SIMULATED, host_waits
from .test_waiting import whole

pytestmark = pytest.mark.skipif(not SIMULATED, reason="a stand-in for NCCL, between simulated devices")
DEVICES = [GPU, torch.device(GPU.type, 1)]
STEPS = 6
PATIENCE_S = 10.0


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank whose peer has failed soon ends. What earlier tests have summed is over. This thread has a current device,
    because it lets go of what the ranks leave."""
    accelerator.use(GPU)
    nccl._LAST_SUMS.clear()
    monkeypatch.setattr(nccl, "_PATIENCE_S", PATIENCE_S)


def on_two_gpus(work: Callable[[int, Group], Any]) -> list[Any]:
    """Two ranks as threads, each with a device of its own."""
    wire = Wire(2)

    def rank_work(rank: int) -> Any:
        accelerator.use(DEVICES[rank])
        return work(rank, Group(wire, rank, DEVICES[rank]))

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(rank_work, range(2)))


def contents(step: int, device: torch.device) -> dict[str, torch.Tensor]:
    """Tensors of a message: one has no elements, one is not contiguous, and one is not on the GPU."""
    tensors = whole(step, device)
    return {**tensors, "empty": torch.empty(0, 4, device=device), "across": tensors["s"].t(), "host": torch.arange(3)}


def test_messages_from_gpu_to_gpu() -> None:
    """The sender's memory stays until NCCL has read it, and the receiver's stream waits until NCCL has written."""
    queue = Queue("0->1", in_flight=STEPS)

    def work(rank: int, group: Any) -> list[dict[str, torch.Tensor]]:
        device = DEVICES[rank]
        came = []
        if rank == 0:
            sender = NcclSender(edge="0->1", headers=queue, group=group, device=device, timeout_s=20.0)
            sender.connect()
            for step in range(STEPS):
                tensors = contents(step, device)
                if step % 2:
                    first = {name: tensors.pop(name) for name in ("s", "mask")}
                    driven(sender.begin(Message(MessageKind.TRAIN, step, first)))
                    tensors = first | tensors
                driven(sender.send(Message(MessageKind.TRAIN, step, tensors)))
            driven(sender.flush())
            assert not sender._under_way  # the neighbour has it all
            sender.close()
        else:
            receiver = NcclReceiver(edge="0->1", headers=queue, group=group, device=device)
            receiver.connect()
            end_s = time.monotonic() + PATIENCE_S
            while len(came) < STEPS:
                if not queue.waiting():
                    assert time.monotonic() < end_s, "the sender has failed"
                    time.sleep(1e-3)
                    continue
                message = driven(receiver.receive())
                came.append({name: tensor.clone() for name, tensor in message.tensors.items()})
                receiver.release(message)
            receiver.close()
        assert group.aborted
        return [{name: tensor.cpu() for name, tensor in tensors.items()} for tensors in came]

    came = on_two_gpus(work)[1]
    for step, tensors in enumerate(came):
        expected = contents(step, torch.device("cpu"))
        assert list(tensors) == list(expected)
        assert all(torch.equal(tensors[name], value) for name, value in expected.items())


def test_a_neighbour_that_is_lost() -> None:
    """Both ends name the edge, whatever NCCL says."""
    queue, wire = Queue("0->1", in_flight=STEPS), Wire(2)
    ranks = [Group(wire, rank, device) for rank, device in enumerate(DEVICES)]
    sender = NcclSender(
        edge="0->1",
        headers=queue,
        group=ranks[0],  # type: ignore[arg-type]
        device=GPU,
        timeout_s=20.0,
    )
    receiver = NcclReceiver(
        edge="0->1",
        headers=queue,
        group=ranks[1],  # type: ignore[arg-type]
        device=DEVICES[1],
    )
    message = Message(MessageKind.TRAIN, 1, {"s": torch.ones(3, device=GPU)})
    driven(sender.send(message))
    ranks[0].end()
    with pytest.raises(ChannelError, match="edge 0->1") as at_receiver:
        driven(receiver.receive())
    with pytest.raises(ChannelError, match="edge 0->1") as at_sender:
        driven(sender.send(message))
    for caught in (at_receiver, at_sender):
        assert "remote process exited" in str(caught.value.__cause__)
    accelerator.wait_for_all(GPU)  # for what was sent before


@pytest.mark.parametrize("holds_host", [True, False])
def test_sums_and_rows_of_two_gpus(holds_host: bool) -> None:
    """Sums within a computation do not hold the host: that would cost two waits for each batch normalisation."""
    started = threading.Barrier(2, timeout=60.0)

    def work(rank: int, group: Any) -> tuple[int, torch.Tensor, torch.Tensor]:
        over = all_reduce_class(ALL_REDUCES.section("backend"))(group, timeout_s=20.0, holds_host=holds_host)
        values = torch.arange(4.0, device=DEVICES[rank]) + rank
        started.wait()
        waits = host_waits()
        over.sum(values)
        rows = over.gather(values * (rank + 1))
        started.wait()
        waited = host_waits() - waits
        started.wait()
        return waited, values.cpu(), rows.cpu()

    for waited, summed, rows in on_two_gpus(work):
        assert torch.equal(summed, 2 * torch.arange(4.0) + 1)
        assert torch.equal(rows, torch.stack([summed, 2 * summed]))
        assert (waited > 0) == holds_host


def test_sums_within_computations_and_of_gradients_start_in_one_order() -> None:
    """Another thread starts those of gradients. That of rank 0 is late here, and it would start the other one first."""
    wires = {name: Wire(2) for name in ("gradients", "norms")}
    spec = load_spec(
        {
            "name": "norms",
            "data": {"source": "digits", "batch_size": 8},
            "model": {"components": [{"block": "linear", "width": 4}]},
            "replicas": {"count": 2, "all_reduce": "backend"},
            "run": {"epochs": 1},
        }
    ).spec

    def work(rank: int) -> torch.Tensor:
        device, plan = DEVICES[rank], SimpleNamespace(replicas=2, stages=1)
        accelerator.use(device)
        weight = torch.nn.Parameter(torch.ones(4, device=device))
        component = SimpleNamespace(index=0, parameters=lambda: [weight])
        assignment = SimpleNamespace(
            spec=spec, plan=plan, stage=0, replica=rank, shares=(4, 4), least_share=1, code=no_user_code
        )
        gradients = Group(wires["gradients"], rank, device)
        replication = ReducedReplication(
            assignment,  # type: ignore[arg-type]
            ReplicaPeers(gradients, torch.distributed.HashStore(), 20.0),  # type: ignore[arg-type]
            [component],  # type: ignore[list-item]
            device,
        )
        norms = all_reduce_class(ALL_REDUCES.section("backend"))(
            Group(wires["norms"], rank, device),  # type: ignore[arg-type]
            timeout_s=20.0,
            holds_host=False,
        )
        values, sums = torch.ones(2, device=device), replication.in_order(norms)
        for within in (sums.sum, sums.gather):
            if rank == 0:
                replication._thread.submit(time.sleep, 0.3)
            replication._reducers[0].start([torch.ones(4, device=device)], 0.5)
            within(values)
            averaged = replication._reducers[0].wait()[0]
            assert averaged is not None and torch.equal(averaged.cpu(), torch.ones(4))
        return values.cpu()

    with ThreadPoolExecutor(2) as threads:
        assert all(torch.equal(values, torch.full((2,), 2.0)) for values in threads.map(work, range(2)))


def test_two_ranks_on_one_gpu_are_refused() -> None:
    wire = Wire(2)
    Group(wire, 0, GPU)
    with pytest.raises(RuntimeError, match="Duplicate GPU"):
        Group(wire, 1, GPU)
