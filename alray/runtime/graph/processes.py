"""The processes of stages on Ray. They start before their assignments are known, and are ended even if they do not
answer.

This file does not import torch, so that a process can be started before its driver has imported torch.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psutil
import ray

from alray import __version__
from alray.core.errors import PlanError
from alray.runtime.channel.edge_kind import DeviceLocation
from alray.runtime.cluster.placement import Placement
from alray.runtime.local_ray.head import require_not_lost

if TYPE_CHECKING:
    from alray.config.objects import Objects
    from alray.runtime.graph.actor import StageActor
    from alray.runtime.stage.assignment import Assignment

_LOADING_S, _LOOKING_S = 120.0, 2.0
_ENDING_S = 10.0


@dataclass(frozen=True)
class ActorLocation:
    """The node and the process of an actor."""

    node: str
    host: str
    pid: int
    created_s: float
    sees_run_dir: bool
    gpu: str | None = None
    """The GPU of the node that it computes on, by number or name; None: a processor, or an accelerator without NCCL."""
    environment: Mapping[str, Any] | None = None
    """What `alray.runtime.device.devices.environment` says there; None without such a device, which `start` tells."""

    @property
    def device_location(self) -> DeviceLocation:
        return DeviceLocation(self.node, self.gpu)


def environment_of(locations: Sequence[ActorLocation], note: Callable[[str], None]) -> dict[str, str]:
    """`device`, `torch` and `alray` of the processes of a run's stages: what their bits depend on.

    Where they differ, all of them in one text. Several versions of torch are told to `note`.

    Raises PlanError where a process has another version of alray than this one.
    """
    there = [(where.host, where.environment) for where in locations if where.environment is not None]
    for host, environment in there:
        if environment["alray"] != __version__:
            raise PlanError(
                f"a stage on {host} has alray {environment['alray']}, and this process alray {__version__}",
                hint="install the same version on all nodes",
            )
    found = {name: sorted({of[name] for _, of in there}) for name in ("device", "torch", "alray")} if there else {}
    if len(versions := found.get("torch", [])) > 1:
        note(f"the stages have different versions of torch: {' and '.join(versions)}")
    return {name: " and ".join(values) for name, values in found.items()}


def all_ended(calls: Sequence[Any], limit_s: float) -> bool:
    """Wait for these calls of Ray; return whether all have ended in time. Raises StageError if the Ray that this
    process started is lost: after a minute it would end this process without a word."""
    end_s = time.monotonic() + limit_s
    while left := ray.wait(list(calls), num_returns=len(calls), timeout=_LOOKING_S)[1]:
        require_not_lost()
        if time.monotonic() > end_s:
            break
    return not left


class StageProcess:
    """A Ray actor that imports what a stage needs and then becomes the assigned stage, and later another one."""

    def __init__(self) -> None:
        self._stage: StageActor

    def load(self, threads: int, again: bool, is_pipeline: bool) -> None:
        """Import what a stage needs, and compute something on this many threads. This takes seconds of a processor.

        Args:
            again: other trials of the same study may use the process later, so it caches the data that it reads.
            is_pipeline: stages pass gradients to each other.
        """
        gc.disable()  # what imports make is no garbage, and to look through it takes a fifth of their time
        import torch

        import alray.runtime.graph.actor  # noqa: F401
        from alray.data.cache import enable_cache
        from alray.runtime.device.memory_used import run_first_kernels
        from alray.runtime.rendezvous.groups import prepare_for_nccl

        if again:
            enable_cache()
        gc.freeze()
        gc.enable()
        torch.set_num_threads(threads)
        prepare_for_nccl()
        run_first_kernels(with_given_gradient=is_pipeline)

    def become(self, assignment: Assignment, run_token: str, objects: Objects) -> ActorLocation:
        """Take this assignment.

        Args:
            objects: that all stages get, besides those in the assignment.
        """
        from alray.runtime.graph.actor import StageActor

        code = assignment.code.with_objects(objects.and_also(assignment.code.objects))
        self._stage = StageActor(replace(assignment, code=code), run_token)
        return self._stage.location()

    def forget(self) -> None:
        """Stop being a stage. The process then has in memory what it had after `load`."""
        self._stage.close()
        del self._stage
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        from alray.core.accelerator import free_unused_memory

        free_unused_memory()  # another stage on the same GPU may need more of it in the next run

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of `StageActor`, which the stage now is."""
        return getattr(self._stage, method)(*arguments)


@dataclass(frozen=True)
class StageProcesses:
    """A process in each bundle of a placement."""

    placement: Placement
    actors: tuple[Any, ...]
    loaded: tuple[Any, ...]
    """Ray's references to the ends of `load`."""

    @classmethod
    def begin(
        cls, placement: Placement, names: Sequence[str], *, threads: int, again: bool, is_pipeline: bool
    ) -> StageProcesses:
        """Start processes of these names without waiting for them. Ray never restarts them, and repeats no call.

        Args:
            threads: of a stage.
            again, is_pipeline: see `StageProcess.load`.
        """
        remote = ray.remote(StageProcess)
        actors = tuple(
            remote.options(
                name=name,
                max_restarts=0,
                max_task_retries=0,
                **placement.options(index),
            ).remote()
            for index, name in enumerate(names)
        )
        return cls(placement, actors, tuple(actor.load.remote(threads, again, is_pipeline) for actor in actors))

    def wait_until_loaded(self) -> None:
        """Wait until every process has imported what it needs, or has failed to: whoever reads `loaded` learns that.

        Raises StageError as `all_ended`.
        """
        all_ended(self.loaded, _LOADING_S)

    def end(self) -> None:
        """End the processes and free their room."""
        for actor in self.actors:
            ray.kill(actor, no_restart=True)
        self.placement.release()


def end_processes(locations: Sequence[ActorLocation]) -> None:
    """Kill those of these processes that run on this node, and wait until they are gone.

    A stopped process (SIGSTOP) does not answer Ray, but the kill signal reaches it.
    """
    here = ray.get_runtime_context().get_node_id()
    ended = []
    for where in locations:
        if where.node == here:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(where.pid)
                if process.create_time() == where.created_s:  # not another process with the same number
                    process.kill()
                    ended.append(process)
    psutil.wait_procs(ended, timeout=_ENDING_S)
