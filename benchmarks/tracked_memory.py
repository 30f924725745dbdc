"""The memory a stage takes while it trains, counted by torch's MemTracker in one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed._tools.mod_tracker import ModTracker

from alray.models.encoder import Tensors
from alray.models.network import Network
from alray.planning.prediction.plan import Plan
from alray.runtime.channel.edge import Sender, Waiting
from alray.runtime.channel.in_process import TurnBarrier
from alray.runtime.channel.inbox import Inbox
from alray.runtime.channel.message import Message, MessageKind
from alray.runtime.stage.assemble import stage_of
from alray.runtime.stage.clock import Clock
from alray.runtime.stage.ports import Ports
from alray.runtime.stage.stage import MiniBatch

_CPU = torch.device("cpu")
_STEPS = 3  # the first makes the optimizer's state; every later one holds the most


def tracked_peak_bytes(network: Network, plan: Plan, stage: int) -> int:
    """The most that the tensors of one stage take over three mini-batches.

    That is everything but the buffers of the edges and a checkpoint's copy.
    """
    own = plan.stage_plans[stage]
    components = [network.component(index, _CPU) for index in own.components]
    incoming = _mini_batch(network, plan, own.first)
    stepped = stage_of(plan, stage, components)
    tracker = _tracker()
    tracker.track_external(*components, *(incoming.values() if stage == 0 else ()))
    ports = _ports(network, plan, stage)
    with tracker:
        clock = Clock(started_wall_s=time.time(), start_step=0)
        for step in range(1, _STEPS + 1):
            batch = MiniBatch(step, 1e-3, plan.costs.batch_size, incoming if stage == 0 else {})
            for _ in stepped.mini_batch(batch, ports, clock):
                pass
    given = [end for end in (*ports.up_from, *ports.down_from) if isinstance(end, _Giving)]
    return int(tracker.get_tracker_snapshot("peak")[_CPU]["Total"]) - sum(end.nbytes for end in given)


def _ports(network: Network, plan: Plan, stage: int) -> Ports:
    """Edges that bring arbitrary values as soon as they are wanted, and take what is sent. A stage alone hands over to
    itself, as in a run."""
    if plan.stages == 1:
        return Ports.of(plan, stage, barrier=TurnBarrier(1))
    held = plan.held(stage)
    first = sorted(run.start for each in plan.stage_plans for run in each.runs)  # component, by virtual stage
    samples = plan.costs.batch_size // plan.micro_batches

    def comes_up(virtual: int) -> Tensors:
        return _mini_batch(network, plan, first[virtual], samples)

    def comes_down(virtual: int) -> Tensors:
        shapes = network.method.goes_up(network.encoders[first[virtual + 1] - 1])
        return {name: shape.empty(samples, _CPU).normal_() for name, shape in shapes.items() if name != "mask"}

    return Ports(
        up_from=[_Giving(partial(comes_up, virtual)) if virtual > 0 else None for virtual in held],
        up_to=[_Taking() if virtual < plan.top else None for virtual in held],
        down_from=[_Giving(partial(comes_down, virtual)) if virtual < plan.top else None for virtual in held],
        down_to=[_Taking() if virtual > 0 else None for virtual in held],
        barrier=TurnBarrier(1),
    )


class _Giving(Inbox):
    """The tensors that it sends lie in buffers of its edge: their bytes are not the stage's."""

    def __init__(self, made: Callable[[], Tensors]) -> None:
        self._tensors = made()
        self.nbytes = sum(value.nbytes for value in self._tensors.values())

    def take(self, kind: MessageKind, step: int, virtual: int = 0, micro_batch: int = 0) -> Waiting[Message]:
        yield from ()
        tensors = {name: value.detach() for name, value in self._tensors.items()}
        return Message(kind, step, tensors, virtual=virtual, micro_batch=micro_batch)

    def complete(self, message: Message) -> Waiting[None]:
        yield from ()

    def release(self, message: Message) -> None: ...


class _Taking(Sender):
    edge, bytes_sent = "", 0

    def send(self, message: Message) -> Waiting[None]:
        yield from ()

    def flush(self) -> Waiting[None]:
        yield from ()


def _mini_batch(network: Network, plan: Plan, first: int, samples: int | None = None) -> Tensors:
    """An input of component `first`; where rows have lengths, those of each micro-batch differ."""
    samples = samples or plan.costs.batch_size
    incoming = network.training_input(first, samples, _CPU)
    if "mask" in incoming:
        incoming["mask"][:: max(1, samples // plan.micro_batches), -1] = False
    if incoming["s"].is_floating_point():
        incoming["s"].normal_()
    labels = (network.labels(0) | network.labels(len(network) - 1))["labels"]
    return {"labels": labels.empty(samples, _CPU).zero_()} | incoming  # those of a pipeline go to every stage


class _NoModules:
    """In the place of the tracker's hooks on modules, which tell parts of its total apart. They hold a module's outputs
    for as long as a loss is kept that came of them, and a pipeline holds those of all its micro-batches."""

    is_bw = False

    def register_user_hooks(self, *hooks: Any) -> None: ...

    def clear_user_hooks(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def _tracker() -> MemTracker:
    tracker = MemTracker()
    tracker._mod_tracker = cast(ModTracker, _NoModules())
    return tracker
