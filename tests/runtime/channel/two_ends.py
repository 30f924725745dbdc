"""Two processes at the two ends of edges over loopback: `python two_ends.py FOLDER`.

Each scenario is a pair of functions, of the sending end (rank 0) and of the receiving end (rank 1). What they return is
written to FOLDER/RANK.json, and `test_point_to_point.py` looks at it. All scenarios run in one pair of processes, each
on separate tags; the last one ends the receiving process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing import start_processes

from alray.core.errors import ChannelError, MessageError
from alray.runtime.channel.message import CutFlag, Message, MessageKind
from alray.runtime.channel.point_to_point import GroupBarrier, PointToPointReceiver, PointToPointSender

CAPACITY = 4096
LENGTHS = (5, 2, 7, 1, 0, 3)
AHEAD_S = 0.4  # ample for a sender to run as far ahead as it can


def done(waiting: Any) -> Any:
    """Run an operation to its end: between processes it never yields."""
    try:
        next(waiting)
    except StopIteration as end:
        return end.value
    raise AssertionError("it yielded")


def text(step: int, length: int) -> dict[str, torch.Tensor]:
    """A mini-batch of text of some length, with no value that another mini-batch has."""
    return {
        "s": torch.arange(2 * length * 3, dtype=torch.float32).view(2, length, 3) + 1000 * step,
        "mask": torch.ones(2, length, dtype=torch.bool),
        "lengths": torch.full((2,), length),
    }


def weight() -> torch.Tensor:
    return torch.linspace(-1, 1, 16 * 4).view(16, 4).requires_grad_()


def loss(s: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (s @ w).square().mean()


def samples(step: int) -> torch.Tensor:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(step))


class Ends:
    """Makes the ends of the scenario at hand; `told` and `tell` pass numbers beside the edge."""

    def __init__(self, store: dist.Store, rank: int) -> None:
        self.store, self.rank, self.name = store, rank, ""
        self.group = dist.group.WORLD
        self.other_group = dist.new_group(backend="gloo")
        self.tag = 0

    def sender(self, *, capacity: int = CAPACITY, rest: int = 0, tag: int | None = None) -> PointToPointSender:
        return PointToPointSender(
            edge=f"{self.rank}->{1 - self.rank}",
            peer=1 - self.rank,
            tag=tag or self.tag,
            capacity_bytes=capacity,
            rest_bytes=rest,
            group=self.group,
            timeout_s=20.0,
        )

    def receiver(
        self, in_flight: int, *, rest: int = 0, tag: int | None = None, group: Any = None, timeout_s: float = 20.0
    ) -> Any:
        return PointToPointReceiver(
            edge=f"{1 - self.rank}->{self.rank}",
            peer=1 - self.rank,
            tag=tag or self.tag,
            capacity_bytes=CAPACITY,
            rest_bytes=rest,
            in_flight=in_flight,
            device=torch.device("cpu"),
            group=group or self.group,
            timeout_s=timeout_s,
        )

    def tell(self, key: str, value: int) -> None:
        self.store.set(f"{self.name}/{key}", str(value))

    def told(self, key: str) -> int:
        return int(self.store.get(f"{self.name}/{key}"))


def lengths_send(ends: Ends) -> int:
    sender = ends.sender()
    for step, length in enumerate(LENGTHS):
        tensors = text(step, length)
        done(sender.send(Message(MessageKind.TRAIN, step, tensors)))
        for tensor in tensors.values():
            tensor.fill_(0)  # it was packed: that of the sender may change
    done(sender.send(Message(MessageKind.CUT, 9, flags=CutFlag.EVALUATE | CutFlag.STOP, count=4)))
    done(sender.flush())
    return sender.bytes_sent


def lengths_receive(ends: Ends) -> list[Any]:
    receiver = ends.receiver(1)
    seen: list[Any] = []
    for step, length in enumerate(LENGTHS):
        message = done(receiver.receive())
        expected = text(step, length)
        right = message.step == step and list(message.tensors) == list(expected)
        right = right and all(torch.equal(message.tensors[name], value) for name, value in expected.items())
        seen.append([right, list(message.tensors["s"].shape)])
        receiver.release(message)
    cut = done(receiver.receive())
    seen.append([cut.kind == MessageKind.CUT, cut.step, cut.flags, cut.count, len(cut.tensors)])
    return seen


def autograd_send(ends: Ends) -> None:
    sender = ends.sender()
    for step in range(12):
        done(sender.send(Message(MessageKind.TRAIN, step, {"s": samples(step)})))
    done(sender.flush())


def autograd_receive(ends: Ends) -> list[bool]:
    receiver = ends.receiver(2)
    right = []
    for step in range(12):
        message = done(receiver.receive())
        w = weight()
        value = loss(message.tensors["s"], w)
        time.sleep(AHEAD_S / 8)  # the sender writes wherever it may
        value.backward()
        expected = weight()
        loss(samples(step), expected).backward()
        right.append(torch.equal(message.tensors["s"], samples(step)) and torch.equal(w.grad, expected.grad))
        receiver.release(message)
    return right


def bound_send(ends: Ends) -> None:
    sender = ends.sender()
    ends.tell("sent", 0)
    for step in range(12):
        done(sender.send(Message(MessageKind.TRAIN, step)))
        ends.tell("sent", step + 1)
    done(sender.flush())


def bound_receive(ends: Ends) -> dict[str, Any]:
    receiver = ends.receiver(3)
    waiting = [receiver.waiting()]
    time.sleep(AHEAD_S)
    untouched = ends.told("sent")
    waiting.append(receiver.waiting())
    message = done(receiver.receive())
    time.sleep(AHEAD_S)
    taken = ends.told("sent")
    waiting.append(receiver.waiting())
    receiver.release(message)
    time.sleep(AHEAD_S)
    released = ends.told("sent")
    waiting.append(receiver.waiting())
    steps = []
    for _ in range(11):
        message = done(receiver.receive())
        steps.append(message.step)
        receiver.release(message)
    in_order = steps == list(range(1, 12))
    return {"untouched": untouched, "taken": taken, "released": released, "in_order": in_order, "waiting": waiting}


def both_ways_low(ends: Ends) -> list[int]:
    up, down = ends.sender(), ends.receiver(1, tag=ends.tag + 1)
    answers = []
    for step in range(3):
        done(up.send(Message(MessageKind.EVALUATE, step, {"s": torch.full((4,), float(step))})))
    for _ in range(3):
        message = done(down.receive())
        answers.append(int(message.tensors["route"].sum()))
        down.release(message)
    return answers


def both_ways_high(ends: Ends) -> None:
    up, down = ends.receiver(1), ends.sender(tag=ends.tag + 1)
    for _ in range(3):
        message = done(up.receive())
        done(down.send(Message(MessageKind.ROUTE, message.step, {"route": message.tensors["s"] * 2})))
        up.release(message)
    done(down.flush())


def too_large_send(ends: Ends) -> list[str]:
    sender = ends.sender()
    told = []
    done(sender.send(Message(MessageKind.TRAIN, 1, {"s": torch.ones(8)})))
    for wrong in (torch.zeros(40, 40), torch.zeros(1, 1, 1, 1, 1, 1, 1), torch.zeros(3, dtype=torch.complex64)):
        try:
            done(sender.send(Message(MessageKind.TRAIN, 2, {"s": wrong, "t": torch.zeros(2)})))
        except MessageError as error:
            told.append(str(error))
    done(sender.send(Message(MessageKind.TRAIN, 2, {"s": torch.full((8,), 2.0)})))
    done(sender.flush())
    return told


def too_large_receive(ends: Ends) -> list[list[float]]:
    receiver = ends.receiver(3)
    time.sleep(AHEAD_S / 4)
    return [done(receiver.receive()).tensors["s"].tolist() for _ in range(2)]


def two_parts_send(ends: Ends) -> int:
    """Every third message, and the cut, are sent in one part."""
    sender = ends.sender(rest=CAPACITY)
    for step in range(9):
        s, t = samples(step), torch.full((8,), step)
        if step % 3:
            done(sender.begin(Message(MessageKind.TRAIN, step, {"s": s})))
            ends.told(f"has samples of {step}")  # the labels leave only when the receiver has the samples
        done(sender.send(Message(MessageKind.TRAIN, step, {"s": s, "t": t})))
    done(sender.send(Message(MessageKind.CUT, 9)))
    done(sender.flush())
    return sender.bytes_sent


def two_parts_receive(ends: Ends) -> list[Any]:
    receiver = ends.receiver(1, rest=CAPACITY)
    seen: list[Any] = []
    for step in range(9):
        message = done(receiver.receive())
        came_first, held = sorted(message.tensors), message.tensors
        if message.more:
            ends.tell(f"has samples of {step}", 1)
        done(receiver.complete(message))
        right = torch.equal(held["s"], samples(step)) and held["t"].tolist() == [step] * 8
        seen.append([came_first, right])
        receiver.release(message)
    seen.append(done(receiver.receive()).kind == MessageKind.CUT)
    return seen


def no_buffer_send(ends: Ends) -> None:
    sender = ends.sender()
    for step in range(2):
        done(sender.send(Message(MessageKind.TRAIN, step)))
    done(sender.flush())  # what is on its way is lost with its sender


def no_buffer_receive(ends: Ends) -> str:
    receiver = ends.receiver(1)
    for _ in range(2):
        done(receiver.receive())
    try:
        done(receiver.receive())
    except ChannelError as error:
        return str(error)
    return "nothing was told"


def alien_send(ends: Ends) -> None:
    dist.send(torch.zeros(CAPACITY, dtype=torch.uint8), dst=1, tag=ends.tag)


def alien_receive(ends: Ends) -> str:
    receiver = ends.receiver(1)
    try:
        done(receiver.receive())
    except ChannelError as error:
        return str(error)
    return "nothing was told"


def barrier(ends: Ends) -> list[bool]:
    """Rank r is late in round r + 1; nobody goes on before it came."""
    group_barrier = GroupBarrier(ends.other_group, 20.0)
    right = []
    for turn in range(4):
        if turn % 2 == ends.rank:
            time.sleep(0.1)
        ends.store.add(f"round {turn}", 1)
        done(group_barrier.wait())
        right.append(ends.store.add(f"round {turn}", 0) == 2)
    return right


def silent_send(ends: Ends) -> None:
    ends.told("heard")  # waits until the other end has given up


def silent_receive(ends: Ends) -> dict[str, Any]:
    receiver = ends.receiver(1, group=ends.other_group, timeout_s=0.3)
    began = time.perf_counter()
    try:
        done(receiver.receive())
        told = "nothing was told"
    except ChannelError as error:
        told = str(error)
    waited_s = time.perf_counter() - began
    ends.tell("heard", 1)
    return {"told": told, "waited_s": waited_s}


def dies_send(ends: Ends) -> dict[str, str]:
    receiver, sender = ends.receiver(1, tag=ends.tag + 1), ends.sender()
    ends.tell("ready", 1)
    told = {"receive": "nothing was told", "send": "nothing was told"}
    try:
        done(receiver.receive())
    except ChannelError as error:
        told["receive"] = str(error)
    try:
        for step in range(4):
            done(sender.send(Message(MessageKind.TRAIN, step)))
    except ChannelError as error:
        told["send"] = str(error)
    return told


def dies_receive(ends: Ends) -> None:
    ends.told("ready")


SCENARIOS: dict[str, tuple[Callable[[Ends], Any], Callable[[Ends], Any]]] = {
    "lengths": (lengths_send, lengths_receive),
    "autograd": (autograd_send, autograd_receive),
    "bound": (bound_send, bound_receive),
    "both ways": (both_ways_low, both_ways_high),
    "too large": (too_large_send, too_large_receive),
    "two parts": (two_parts_send, two_parts_receive),
    "no buffer": (no_buffer_send, no_buffer_receive),
    "alien": (alien_send, alien_receive),
    "barrier": (barrier, barrier),
    "silent": (silent_send, silent_receive),
    "dies": (dies_send, dies_receive),
}


def main(rank: int, folder: Path) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 2)
    store.set_timeout(timedelta(seconds=30))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=30))
    ends = Ends(store, rank)
    found: dict[str, Any] = {}
    for number, (name, sides) in enumerate(SCENARIOS.items()):
        ends.name, ends.tag = name, 10 * (number + 1)
        found[name] = sides[rank](ends)
        (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    os._exit(0)  # receives that nobody will answer are still posted: an orderly end would wait for them


def both_ends() -> None:
    """In forks of this process, so that torch is loaded once."""
    start_processes(main, args=(Path(sys.argv[1]),), nprocs=2, start_method="fork")


if __name__ == "__main__":
    both_ends()
