"""One stage in a separate process: a thread runs the stage's loop, and this thread answers the driver's polls."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any

import psutil
import ray
import torch
import torch.distributed as dist

from alray.core import accelerator
from alray.core.errors import PlanError
from alray.core.run_folder.store import is_marked
from alray.core.storage.appended import opened_log
from alray.runtime.cluster.nodes import given_gpus, is_slice, not_shared
from alray.runtime.device import devices
from alray.runtime.device.memory_used import memory_baseline
from alray.runtime.graph.graph import Outbox, status_of
from alray.runtime.graph.processes import ActorLocation
from alray.runtime.rendezvous.edges import ports_of
from alray.runtime.rendezvous.groups import join, join_replicas
from alray.runtime.rendezvous.store import HostedStore, Meeting, MeetingPoint, choose_interface
from alray.runtime.stage.assemble import assemble_loop, clock_for, network_for
from alray.runtime.stage.assignment import Assignment
from alray.runtime.stage.leader import Control
from alray.runtime.stage.loop import StageLoop
from alray.runtime.stage.ports import Ports
from alray.runtime.stage.profiler import Profiler, prepare_recording
from alray.runtime.stage.telemetry import StageStatus

_SWITCH_S = 2.0e-4


def require_run_dir(assignment: Assignment, location: ActorLocation) -> None:
    """Raise PlanError where the node of a stage does not see the run folder."""
    if not location.sees_run_dir:
        raise not_shared(assignment.title, location.host, assignment.run_dir)


def own_device(assignment: Assignment) -> torch.device:
    """The device of a stage in this process: the GPU that Ray reserved for it, or a CPU."""
    if assignment.device_kind == "cpu":
        return torch.device("cpu")
    kind = assignment.device_kind
    return devices.pick(kind, gpu=devices.number_of_given(given_gpus(), kind))


def gpu_for_nccl(assignment: Assignment) -> str | None:
    """The GPU of a stage in this process, as `ActorLocation.gpu`; None for a slice of a GPU."""
    if not accelerator.has_nccl(assignment.device_kind):
        return None
    gpu = given_gpus()[0]
    return None if is_slice(gpu) else gpu


class StageActor:
    """One stage of one replica. Its methods return at once; the loop runs in a thread."""

    def __init__(self, assignment: Assignment, run_token: str) -> None:
        self._assignment = assignment
        self._run_token = run_token
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"stage-{assignment.stage}")
        self._outcome: Future[None] = Future()
        self._outbox = Outbox()
        self._control = Control()
        self._loop: StageLoop | None = None
        self._ports = Ports.of(assignment.plan, assignment.stage)  # of a stage alone
        self._stores: dict[str, HostedStore] = {}

    def location(self) -> ActorLocation:
        """Where this actor runs, and whether its node sees the run folder that the driver made."""
        return ActorLocation(
            node=ray.get_runtime_context().get_node_id(),
            host=ray.util.get_node_ip_address(),
            pid=os.getpid(),
            created_s=psutil.Process().create_time(),
            sees_run_dir=is_marked(self._assignment.run_dir, self._run_token),
            gpu=gpu_for_nccl(self._assignment),
            environment=self._environment(),
        )

    def _environment(self) -> dict[str, Any] | None:
        try:
            return devices.environment(own_device(self._assignment))
        except PlanError:
            return None

    def host_store(self, host: str | None, whose: str) -> MeetingPoint:
        """Open a store on this host and return where others find it.

        Args:
            host: as for `HostedStore`.
            whose: `stages` of this replica, or all `replicas`.
        """
        self._stores[whose] = HostedStore(host)
        return self._stores[whose].point

    def start(self, meeting: Meeting) -> None:
        """Begin the loop."""
        if self._assignment.profile:
            prepare_recording()
        with suppress(PlanError):  # the loop raises it too, and a poll tells it
            device = own_device(self._assignment)
            if accelerator.is_accelerator(device):
                accelerator.use(device)  # polls ask for its events, and `close` lets go of them
        self._outcome = self._executor.submit(self._run, meeting)

    def poll(self, received: int) -> StageStatus:
        """The status, with all reports but the first `received` ones, which the driver has."""
        return status_of(self._assignment, self._loop, self._outbox, self._outcome, received=received)

    def request_stop(self) -> None:
        self._control.stop_requested = True

    def close(self) -> None:
        """Free everything that this process holds for the stage. All stages of the run have ended."""
        self._executor.shutdown()
        self._loop = None
        self._ports.close()
        if dist.is_initialized():
            dist.destroy_process_group()
        self._stores.clear()

    def _run(self, meeting: Meeting) -> None:
        assignment = self._assignment
        file = assignment.run_dir / "logs" / f"stage-{assignment.stage}.log"
        with opened_log(file, lambda fault: self._outbox.put(assignment.warning(fault))) as log, _output_to(log):
            self._run_stage(assignment, meeting)

    def _run_stage(self, assignment: Assignment, meeting: Meeting) -> None:
        spec = assignment.spec
        device = own_device(assignment)
        devices.configure(spec.resources.threads, spec.run.deterministic, device, spec.resources.tf32)
        network = network_for(assignment)
        timeout_s = assignment.plan.longest_wait_s
        choose_interface(meeting)
        held = {whose: hosted.store for whose, hosted in self._stores.items()}
        joined = replicas = None
        if meeting.stages is not None:
            joined = join(meeting.stages, assignment, held.get("stages"), timeout_s)
        if meeting.replicas is not None:
            replicas = join_replicas(
                meeting.replicas, assignment, held.get("replicas"), meeting.replica_locations, timeout_s
            )
        baseline = memory_baseline(device)
        if meeting.stages is not None and joined is not None:
            self._ports = ports_of(assignment, network, device, *joined, meeting.stages, meeting.locations, timeout_s)
        with closing(Profiler(assignment.profile, assignment.trace, stages=1, device=device)) as profiler:
            self._loop = assemble_loop(
                assignment,
                network=network,
                device=device,
                ports=self._ports,
                clock=clock_for(assignment, device),
                control=self._control,
                emit=self._outbox.put,
                replicas=replicas,
                profiler=profiler,
                baseline_bytes=baseline,
            )
            # Otherwise every full garbage collection would walk through all that the imports left.
            gc.collect()
            gc.freeze()
            # By default the loop would wait up to 5 ms for the thread that answers a poll.
            sys.setswitchinterval(_SWITCH_S)
            for _ in self._loop.run():
                pass


@contextmanager
def _output_to(log: int) -> Iterator[None]:
    """Write to a log what this process and a user's code print, also after the block; in the block all of it."""
    _flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        yield
    finally:
        _flush()


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
