"""Ray Train's TorchTrainer around the stages of data parallelism: the trainer in an actor, a stage in each worker."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import ray
import torch.distributed as dist
from ray.exceptions import RayActorError
from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError, WorkerGroupError, get_context
from ray.train.torch import TorchConfig, TorchTrainer

from alray.errors import ChannelError, RunError
from alray.graph.actor import StageActor, Whereabouts, require_run_dir
from alray.graph.rendezvous import Meeting, MeetingPoint
from alray.stage.assignment import Assignment
from alray.stage.telemetry import StageStatus

STORAGE = "ray-train"
"""Folder, in the run's, where Ray Train keeps its own state for as long as it runs."""

Order = Literal["go_on", "stop", "end"]
"""What the driver asks the workers for: to stop after a mini-batch and its checkpoint, or to end at once."""

_TELL_S = 0.2
_HEALTH_CHECK_S = 0.5
_QUIET = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": str(_HEALTH_CHECK_S),  # how soon it notices an end or a death
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # one actor less; the driver restarts the run by itself
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}
"""What Ray Train reads from the environment of the process that calls `fit`."""


@dataclass(frozen=True)
class Fate:
    """How the trainer ended where it did not end well: what it said, and of each replica that died the reason."""

    message: str
    dead: dict[int, str]


@dataclass
class Heard:
    """What the workers have said: of each replica its latest status, with all reports since they were last taken."""

    statuses: dict[int, StageStatus] = field(default_factory=dict)
    places: dict[int, Whereabouts] = field(default_factory=dict)
    silent_s: dict[int, float] = field(default_factory=dict)
    fate: Fate | None = None
    ended: bool = False


class TrainerActor:
    """Runs the trainer, and carries what its workers say to the driver, and back what the driver asks for.

    Several of its methods run at once. What it starts it owns: when it is killed, Ray ends all of it.
    """

    def __init__(self, bundle: dict[str, float], labels: dict[str, str], storage: Path, timeout_s: float) -> None:
        """bundle, labels: what each worker needs, and what its node must carry; storage: for Ray Train alone;
        timeout_s: of an operation of the workers' process group."""
        self._bundle, self._labels, self._storage, self._timeout_s = bundle, labels, storage, timeout_s
        self._lock = Lock()
        self._heard = Heard()
        self._heard_at: dict[int, float] = {}
        self._order: Order = "go_on"

    def fit(self, assignments: Sequence[Assignment], run_token: str) -> None:
        """Train to the end, however it ends."""
        os.environ |= _QUIET
        fate = None
        try:
            self._trainer(assignments, run_token).fit()
        except TrainingFailedError as error:
            fate = _fate(error)
        finally:
            with self._lock:
                self._heard.fate, self._heard.ended = fate, True

    def _trainer(self, assignments: Sequence[Assignment], run_token: str) -> TorchTrainer:
        config = {
            "assignments": list(assignments),
            "run_token": run_token,
            "trainer": ray.get_runtime_context().current_actor,
        }
        uses_gpu = self._bundle.get("GPU", 0.0) > 0
        return TorchTrainer(
            train_worker,
            train_loop_config=config,
            torch_config=TorchConfig(backend="nccl" if uses_gpu else "gloo", timeout_s=int(self._timeout_s)),
            scaling_config=ScalingConfig(
                num_workers=len(assignments),
                use_gpu=uses_gpu,
                resources_per_worker=self._bundle,
                label_selector=self._labels or None,
            ),
            run_config=RunConfig(
                name="workers", storage_path=str(self._storage), failure_config=FailureConfig(max_failures=0)
            ),
        )

    def tell(self, status: StageStatus, place: Whereabouts) -> Order:
        """A worker's status, from the worker; returns what it is asked for."""
        with self._lock:
            before = self._heard.statuses.get(status.replica)
            if before is not None:
                status = replace(status, reports=before.reports + status.reports)
            self._heard.statuses[status.replica] = status
            self._heard.places[status.replica] = place
            self._heard_at[status.replica] = time.monotonic()
            return self._order

    def take(self) -> Heard:
        """What was heard, for the driver; reports are handed out once."""
        now = time.monotonic()
        with self._lock:
            heard = replace(
                self._heard,
                statuses=dict(self._heard.statuses),
                places=dict(self._heard.places),
                silent_s={replica: now - at for replica, at in self._heard_at.items()},
            )
            self._heard.statuses = {replica: replace(status, reports=()) for replica, status in heard.statuses.items()}
        return heard

    def give(self, order: Order) -> None:
        """Ask all workers for this."""
        self._order = order


def train_worker(config: dict[str, Any]) -> None:
    """The training function: the stage of this worker's rank, as on an actor of its own, and what it has to say.

    Raises what its stage raised, so that Ray Train ends the others.
    """
    context = get_context()
    rank = context.get_world_rank()
    assignment: Assignment = config["assignments"][rank]
    actor = StageActor(assignment, config["run_token"], device_index=context.get_local_rank())
    place = actor.whereabouts()
    require_run_dir(assignment, place)
    actor.start(_meeting(actor, context, place))
    while True:
        status = actor.poll()
        order: Order = ray.get(config["trainer"].tell.remote(status, place))
        if order == "end":
            raise RunError("the run was ended")
        if order == "stop":
            actor.request_stop()
        if status.finished and status.error is None:
            return
        # One that lost another does not end: the word is Ray Train's on who died, and that ends this one too.
        if status.error is not None and not isinstance(status.error, ChannelError):
            raise status.error
        time.sleep(_TELL_S)


def _meeting(actor: StageActor, context: Any, place: Whereabouts) -> Meeting:
    """Where the replicas meet for what goes beside DDP: a store on the first of them."""
    if context.get_world_size() == 1:
        return Meeting(None, None)
    one_host = context.get_local_world_size() == context.get_world_size()
    host = "127.0.0.1" if one_host else place.host
    said: list[Any] = [None]
    if context.get_world_rank() == 0:
        said = [(host, actor.host_store(host, "replicas"))]
    dist.broadcast_object_list(said, src=0)
    host, port = said[0]
    return Meeting(None, MeetingPoint(host, port, one_host))


def _fate(error: TrainingFailedError) -> Fate:
    """Of a worker that raised, its own status has told; one whose actor is gone can tell no more."""
    dead = {}
    if isinstance(error, WorkerGroupError):
        for rank, failure in error.worker_failures.items():
            reason = getattr(failure, "health_check_failure", failure)
            if isinstance(reason, RayActorError):
                dead[rank] = str(reason)
    return Fate(str(error).strip(), dead)
