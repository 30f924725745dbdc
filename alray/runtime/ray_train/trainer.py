"""Ray Train's TorchTrainer for data parallelism. The trainer runs in an actor, and one stage in each of its workers."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import ray
import torch.distributed as dist
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError, WorkerGroupError, get_context
from ray.train.torch import TorchConfig, TorchTrainer

from alray.core.accelerator import AUTO, has_nccl
from alray.core.compat import TorchBackend, set_torch_distributed_env_vars
from alray.core.errors import ChannelError, RunError
from alray.runtime.cluster.nodes import given_gpus, is_slice
from alray.runtime.device.devices import number_of_given, pick
from alray.runtime.graph.actor import StageActor, require_run_dir
from alray.runtime.graph.graph import Answers
from alray.runtime.graph.processes import ActorLocation
from alray.runtime.rendezvous.groups import prepare_for_nccl
from alray.runtime.rendezvous.store import HostedStore, Meeting, MeetingPoint, enter
from alray.runtime.stage.assignment import Assignment
from alray.runtime.stage.telemetry import StageStatus

STORAGE = "ray-train"
"""Subfolder of the run folder that holds Ray Train's state while it runs."""

Instruction = Literal["continue", "stop", "end"]
"""The driver's instruction to a worker: `stop` ends after this mini-batch and a checkpoint, `end` ends at once."""

_REPORT_S = 0.2
_HEALTH_CHECK_S = 0.5
_QUIET = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": str(_HEALTH_CHECK_S),  # how soon Ray Train notices that a worker ended or died
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # saves an actor: the driver restarts the run itself
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}
"""Settings that Ray Train reads from the environment of the process that calls `fit`."""


@dataclass
class WorkerReports:
    """The reports of the workers: the latest status of each replica, with all its reports since the last `take`.

    Attributes:
        locations: of the replicas that have reported.
        ended: whether `fit` has returned.
        message: how the trainer failed; "" unless it did.
        dead: for each replica that died the reason.
    """

    statuses: list[StageStatus] = field(default_factory=list)
    locations: dict[int, ActorLocation] = field(default_factory=dict)
    ended: bool = False
    message: str = ""
    dead: dict[int, str] = field(default_factory=dict)


@dataclass
class TrainerActor:
    """Runs the trainer. It passes the workers' reports to the driver, and the driver's instructions to the workers.

    Several of its methods run at once. It owns the actors that it starts: if it is killed, Ray ends them too.

    Attributes:
        bundle: resources of each worker.
        labels: labels of its node.
        storage: folder for Ray Train's files.
        timeout_s: limit for one operation of the workers' process group.
    """

    bundle: dict[str, float]
    labels: dict[str, str]
    storage: Path
    timeout_s: float

    def __post_init__(self) -> None:
        self._lock = Lock()
        self._answers = Answers()
        self._reports = WorkerReports()
        self._instruction: Instruction = "continue"

    def fit(self, assignments: Sequence[Assignment], run_token: str) -> None:
        """Train until the trainer ends or fails."""
        os.environ |= _QUIET
        self._answers = Answers(assignments)
        try:
            self._trainer(assignments, run_token).fit()
        except TrainingFailedError as error:
            self._reports.message, self._reports.dead = str(error).strip(), _dead_by(error)
        finally:
            self._reports.ended = True

    def _trainer(self, assignments: Sequence[Assignment], run_token: str) -> TorchTrainer:
        config = {
            "assignments": list(assignments),
            "run_token": run_token,
            "trainer": ray.get_runtime_context().current_actor,
        }
        backend = backend_of(self.bundle, assignments[0].device_kind)
        return TorchTrainer(
            train_worker,
            train_loop_config=config,
            torch_config=StoreOnOneAddress(backend=backend, timeout_s=int(self.timeout_s)),
            scaling_config=ScalingConfig(
                num_workers=len(assignments),
                use_gpu=self.bundle.get("GPU", 0.0) > 0,
                resources_per_worker=self.bundle,
                label_selector=self.labels or None,
            ),
            run_config=RunConfig(
                name="workers", storage_path=str(self.storage), failure_config=FailureConfig(max_failures=0)
            ),
        )

    def report(self, status: StageStatus, location: ActorLocation) -> Instruction:
        """Called by a worker with its status; returns the instruction for it."""
        with self._lock:
            self._answers.take(status.replica, status)
            self._reports.locations[status.replica] = location
            return self._instruction

    def take(self) -> WorkerReports:
        """Return what the workers have reported since the last call. Each report is returned once."""
        with self._lock:
            return replace(self._reports, statuses=self._answers.statuses(), locations=dict(self._reports.locations))

    def instruct(self, instruction: Instruction) -> None:
        """Give all workers this instruction."""
        self._instruction = instruction


class StoreOnOneAddress(TorchConfig):
    """Ray Train's torch backend, but the workers meet over a store that listens on one address of the first worker's
    host, or is a file of the user if all are on it. Ray Train's store listens on every address of the host."""

    @property
    def backend_cls(self) -> type[Any]:
        return _OneAddressBackend


class _OneAddressBackend(TorchBackend):
    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        if backend_config.backend == "nccl":
            worker_group.execute(prepare_for_nccl)
        worker_group.execute(set_torch_distributed_env_vars)  # asks for the GPU of each worker
        point = worker_group.execute_single(0, _open_store)
        backend, timeout_s = backend_config.backend, backend_config.timeout_s
        if backend == "nccl" and not all(worker_group.execute(_has_whole_gpu)):
            backend = "gloo"
        ray.get(
            [
                worker_group.execute_single_async(
                    rank, _join_workers, point, backend, rank, len(worker_group), timeout_s
                )
                for rank in range(len(worker_group))
            ]
        )


_stores: list[HostedStore] = []
"""The stores that this process hosts for its trainer. A worker of Ray Train ends with its training."""
_points: list[MeetingPoint] = []
"""Where the workers of this process's trainers have met."""


def _open_store() -> MeetingPoint:
    """Open the store of all workers, in the first one."""
    context = get_context()
    one_host = context.get_local_world_size() == context.get_world_size()
    _stores.append(HostedStore(None if one_host else ray.util.get_node_ip_address()))
    return _stores[-1].point


def _has_whole_gpu() -> bool:
    return not is_slice(given_gpus()[0])


def _join_workers(point: MeetingPoint, backend: str, rank: int, workers: int, timeout_s: float) -> None:
    """Open torch's process group of all workers, in each of them. One of NCCL is on the GPU that the worker computes
    on: torch would take that of the worker's number, which is another one where workers have several."""
    _points.append(point)
    store = enter(point, _stores[-1].store if rank == 0 else None, timeout_s)
    dist.init_process_group(
        backend,
        store=store,
        rank=rank,
        world_size=workers,
        timeout=timedelta(seconds=timeout_s),
        device_id=pick(AUTO, gpu=number_of_given(given_gpus(), AUTO)) if backend == "nccl" else None,
    )


def backend_of(bundle: dict[str, float], device: str) -> Literal["nccl", "gloo"]:
    """Return the backend with which workers on devices of this kind exchange gradients: NCCL refuses two of them on one
    GPU. Whether theirs are slices of GPUs is known when they have started."""
    return "nccl" if bundle.get("GPU", 0.0) >= 1.0 and has_nccl(device) else "gloo"


def train_worker(config: dict[str, Any]) -> None:
    """The function that Ray Train calls in each worker. It runs the stage of the replica with this worker's rank.

    Raises what the stage raised, so that Ray Train ends the other workers.
    """
    context = get_context()
    rank = context.get_world_rank()
    assignment: Assignment = config["assignments"][rank]
    actor = StageActor(assignment, config["run_token"])
    location = actor.location()
    require_run_dir(assignment, location)
    actor.start(_meeting(context.get_world_size(), location))
    received = 0
    while True:
        status = actor.poll(received)
        instruction: Instruction = ray.get(config["trainer"].report.remote(status, location))
        received += len(status.reports)
        if instruction == "end":
            raise RunError("the run was ended")
        if instruction == "stop":
            actor.request_stop()
        if status.finished and status.error is None:
            return
        # A worker that lost its connection continues: Ray Train finds out who died, and then ends this worker too.
        if status.error is not None and not isinstance(status.error, ChannelError):
            raise status.error
        time.sleep(_REPORT_S)


def _meeting(workers: int, location: ActorLocation) -> Meeting:
    """Where the replicas meet to exchange what DDP does not carry: over the store of the workers."""
    point = _points[-1] if workers > 1 else None
    return Meeting(None, point, replica_locations=(location.device_location,) * workers)


def _dead_by(error: TrainingFailedError) -> dict[int, str]:
    """The replicas that died, with the reasons. A worker that raised has reported that itself, so only workers whose
    actor died count."""
    dead = {}
    if isinstance(error, WorkerGroupError):
        for rank, raised in error.worker_failures.items():
            reason = getattr(raised, "health_check_failure", raised)
            if isinstance(reason, RayActorError | OutOfMemoryError):
                dead[rank] = str(reason)
    return dead
