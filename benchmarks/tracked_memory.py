"""The memory a stage takes while it trains, counted by torch's MemTracker in one process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed._tools.mod_tracker import ModTracker
from torch.testing._internal.distributed.fake_pg import FakeStore

from alray.nn.encoder import Tensors
from alray.nn.network import Network
from alray.prediction.plan import Plan
from alray.schedules.table import SCHEDULES
from alray.stage.assemble import chain_of, stage_of
from alray.stage.clock import Clock
from alray.stage.ports import Ports
from alray.stage.replication import Alone
from alray.stage.stages.pipelined import PipelinedStage
from alray.stage.stages.stage import MiniBatch

_CPU = torch.device("cpu")
_STEPS = 3  # the first makes the optimizer's state; every later one holds the most


def tracked_peak_bytes(network: Network, plan: Plan, stage: int) -> int:
    """The most that the tensors of one stage take over three mini-batches: everything but the buffers of alray's own
    edges and a checkpoint's copy.

    A stage of a pipeline runs in torch's own schedule, over a process group that moves nothing.
    """
    own = plan.stage_plans[stage]
    components = [network.component(index, _CPU) for index in own.components]
    incoming = _mini_batch(network, plan, own.first)
    pipelined = SCHEDULES[plan.schedule].is_pipeline and plan.stages > 1
    tracker = _tracker()
    # What comes over an edge lies in a buffer of that edge.
    tracker.track_external(*components, *(incoming.values() if stage == 0 else ()))
    clock = Clock(started_wall_s=time.time(), start_step=0)
    with _group(stage, plan.stages) if pipelined else tracker:
        if pipelined:
            scheduled = PipelinedStage(
                plan,
                stage,
                chain_of(components),
                Alone(),
                network=network,
                device=_CPU,
                batch_size=plan.costs.batch_size,
                wires={},
            )
            if stage > 0:
                del incoming["s"]
            with tracker:
                for step in range(1, _STEPS + 1):
                    scheduled.train(incoming, step, clock)
                    scheduled.update(1e-3)
        else:
            actions = [action for action in plan.actions(stage) if action.kind in "FLBU"]
            stepped = stage_of(components, actions, micro_batches=plan.micro_batches)
            for step in range(1, _STEPS + 1):
                batch = MiniBatch(step, incoming, lr=1e-3, label_lr=1e-3, samples=plan.costs.batch_size)
                for _ in stepped.mini_batch(batch, Ports(), clock):
                    pass
    return int(tracker.get_tracker_snapshot("peak")[_CPU]["Total"])


def _mini_batch(network: Network, plan: Plan, first: int) -> Tensors:
    """An input of component `first`; where rows have lengths, those of each micro-batch differ."""
    samples = plan.costs.batch_size
    incoming = network.training_input(first, samples, _CPU)
    if "mask" in incoming:
        incoming["mask"][:: samples // plan.micro_batches, -1] = False
    if incoming["s"].is_floating_point():
        incoming["s"].normal_()
    labels = (network.labels(0) | network.labels(len(network) - 1))["labels"]
    return {"labels": labels.empty(samples, _CPU).zero_()} | incoming  # those of a pipeline go to every stage


@contextmanager
def _group(rank: int, size: int) -> Iterator[None]:
    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


class _NoModules:
    """In the place of the tracker's hooks on modules, which tell parts of its total apart. They hold a module's outputs
    for as long as a loss is held that came of them, and a pipeline holds those of all its micro-batches."""

    is_bw = False

    def register_user_hooks(self, *hooks: Any) -> None: ...

    def clear_user_hooks(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def _tracker() -> MemTracker:
    tracker = MemTracker()
    tracker._mod_tracker = cast(ModTracker, _NoModules())
    return tracker
