"""The process groups of stages and of replicas, which they form over a store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.core.accelerator import current
from alray.runtime.channel.all_reduce import AllReduce, all_reduce_class, make_all_reduce
from alray.runtime.channel.edge_kind import DeviceLocation, EdgeKind, sum_kind
from alray.runtime.rendezvous.store import MeetingPoint, enter
from alray.runtime.stage.assignment import Assignment
from alray.runtime.stage.replication import ReplicaPeers

_BACKEND = ALL_REDUCES.section("backend")
"""The all-reduce of gloo or NCCL, which sums over replicas whatever algorithm the spec chooses for gradients."""
_ENVIRONMENT = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",  # an operation that failed, or took longer than its time limit
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",  # an error of CUDA, which the thread that computes meets too
    "TORCH_NCCL_ENABLE_MONITORING": "0",  # a watchdog that has waited for CUDA for some minutes
    "CUDA_MODULE_DATA_LOADING": "EAGER",
}


def prepare_for_nccl() -> None:
    """Set up the environment of a stage's process, before it asks for a GPU: CUDA reads it then, and not again. torch
    asks for all GPUs with the first backward pass of a process, also of one on a CPU. What the user has set stays.

    By default torch's watchdog of NCCL ends a process (`TORCH_NCCL_*`, torch's ProcessGroupNCCL.hpp). The driver would
    then report the death of a stage that was well, in place of what happened. The watchdog now reports only: a stage
    raises what it meets itself, and the driver ends stages that are silent for too long.

    A kernel is loaded when it is first used. With the data of its module that may wait for everything under way on the
    GPU (CUDA programming guide, lazy loading): for a send, whose receiver may wait for this stage. So data are loaded
    with their modules; kernels are loaded as before.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def join(
    point: MeetingPoint, assignment: Assignment, store: dist.Store | None, timeout_s: float
) -> tuple[dist.ProcessGroup, dist.Store]:
    """Meet the other stages of the replica. Returns the group that their edges run over, and the store.

    Args:
        store: on the stage that holds it, otherwise None.
    """
    store = enter(point, store, timeout_s)
    dist.init_process_group(
        "gloo",
        store=store,
        rank=assignment.stage,
        world_size=assignment.plan.stages,
        timeout=timedelta(seconds=timeout_s),
    )
    group = dist.group.WORLD
    assert group is not None
    return group, store


def join_replicas(
    point: MeetingPoint,
    assignment: Assignment,
    store: dist.Store | None,
    locations: Sequence[DeviceLocation],
    timeout_s: float,
) -> ReplicaPeers:
    """Meet the same stage of the other replicas.

    Args:
        locations: where this stage of each replica computes.
    """
    store = enter(point, store, timeout_s)
    kind = sum_kind(locations, assignment.spec.replicas.all_reduce.kind)
    group = replica_group(store, assignment, timeout_s, kind=kind)
    norms = replica_sums(store, assignment, locations, timeout_s) if assignment.shares_norms else None
    return ReplicaPeers(group, store, timeout_s, norms=norms)


def replica_sums(
    store: dist.Store, assignment: Assignment, locations: Sequence[DeviceLocation], timeout_s: float
) -> AllReduce:
    """Sums over the replicas of a stage, within its computations. Collective, as `replica_group`.

    They have a separate process group, because another thread uses that of the gradients at the same time.
    """
    kind = sum_kind(locations, _BACKEND.kind)
    group = replica_group(store, assignment, timeout_s, "norms", kind=kind)
    return all_reduce_class(_BACKEND)(group, timeout_s=timeout_s, holds_host=False)


def replica_group(
    store: dist.Store,
    assignment: Assignment,
    timeout_s: float,
    purpose: str = "gradients",
    *,
    kind: EdgeKind = EdgeKind.GLOO,
) -> dist.ProcessGroup:
    """One rank for each replica of a stage. Collective: each rank calls it, from a different process or thread.

    It is not the default group, which joins the stages of one replica.

    Args:
        purpose: names the group.
    """
    own = dist.PrefixStore(f"{purpose} of stage {assignment.stage}", store)
    rank, size = assignment.replica, assignment.plan.replicas
    if kind is EdgeKind.NCCL:
        joined = nccl_group(own, rank, size, timeout_s)
        # NCCL connects with the first operation. That would otherwise be part of the first mini-batch.
        make_all_reduce(_BACKEND, joined, timeout_s=timeout_s).sum(torch.zeros(1, device=current()))
        return joined
    group = dist.ProcessGroupGloo(own, rank, size, timedelta(seconds=timeout_s))
    return cast(dist.ProcessGroup, group)  # it has all of a group's operations


def nccl_group(store: dist.Store, rank: int, size: int, timeout_s: float) -> dist.ProcessGroup:
    from alray.core.compat import ProcessGroupNCCL

    options = ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=timeout_s)
    return cast(dist.ProcessGroup, ProcessGroupNCCL(store, rank, size, options))
