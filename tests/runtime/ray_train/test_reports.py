"""What the driver hears of Ray Train's workers, from words made up here."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from alray.core.errors import ChannelError, NonFiniteLoss, StageError
from alray.runtime.graph.actor import ActorLocation
from alray.runtime.graph.graph import Answers
from alray.runtime.ray_train.graph import ended_early, statuses_of
from alray.runtime.ray_train.trainer import TrainerActor, WorkerReports, backend_of
from alray.runtime.runner.driver import judge
from alray.runtime.stage.telemetry import Losses, StageStatus

LOST = ChannelError("edge between the replicas of stage 0: the neighbour is gone")


def status(replica: int, **values) -> StageStatus:
    return replace(StageStatus(0, replica, 5, 9, "compute"), **values)


def reports_of(*statuses: StageStatus, **values) -> WorkerReports:
    return WorkerReports(
        list(statuses),
        {each.replica: ActorLocation("node", "host", 70 + each.replica, 0.0, True) for each in statuses},
        **values,
    )


def polled(said: WorkerReports) -> list[StageStatus]:
    assignments = [SimpleNamespace(replica=replica, title=f"stage 0 of replica {replica}") for replica in (0, 1)]
    return statuses_of(said, assignments, lambda: ended_early(said.message))


def verdict(said: WorkerReports):
    return judge(polled(said), deadline_s=15.0, wait_s=300.0, still_s=0.0)


def test_a_worker_that_died_is_named() -> None:
    """The other one, which lost it, is not at fault."""
    other = status(0, finished=True, error=LOST)
    assert verdict(reports_of(other, status(1))).kind == "wait", "the word is Ray Train's"
    told = verdict(reports_of(other, status(1), message="it failed", dead={1: "why"}, ended=True))
    assert (told.kind, told.again, told.detail) == ("failed", True, "why")
    assert str(told.error) == "stage 0 of replica 1 died (process 71 on host)"


def test_what_a_worker_raised_is_told_and_ends_the_run() -> None:
    fault = NonFiniteLoss("the loss is nan")
    said = reports_of(status(0), status(1, finished=True, error=fault), message="it failed", ended=True)
    told = verdict(said)
    assert (told.kind, told.error, told.again) == ("failed", fault, False)


def test_a_trainer_that_ends_too_early_is_at_fault() -> None:
    told = verdict(reports_of(status(0), status(1), message="Training failed\nno room", ended=True))
    assert told.again and isinstance(told.error, StageError)
    assert str(told.error).startswith("Ray Train ended before its workers did: no room")


def test_all_well() -> None:
    assert verdict(reports_of(status(0, finished=True), status(1))).kind == "wait"
    assert verdict(reports_of(status(0, finished=True), status(1, finished=True), ended=True)).kind == "finished"


def test_reports_are_handed_out_once_and_none_is_lost(tmp_path) -> None:
    trainer = TrainerActor({"CPU": 1.0}, {}, tmp_path, 300.0)
    start = SimpleNamespace(step=0)
    trainer._answers = Answers([SimpleNamespace(stage=0, replica=replica, start=start) for replica in (0, 1)])
    location = ActorLocation("node", "host", 7, 0.0, True)
    losses = [Losses(step, {0: {"cross_entropy": 1.0}}, 0.1, 0.0) for step in (1, 2, 3)]
    for one in losses[:2]:
        assert trainer.report(status(1, step=one.step, reports=(one,)), location) == "continue"
    taken = trainer.take()
    assert taken.statuses[1].reports == tuple(losses[:2]) and taken.statuses[1].step == 2
    assert taken.statuses[1].answered and not taken.ended
    again = trainer.take().statuses[1]
    assert (again.reports, again.answered) == ((), False)
    trainer.instruct("stop")
    assert trainer.report(status(1, step=3, reports=(losses[2],)), location) == "stop"
    assert trainer.take().statuses[1].reports == (losses[2],)


@pytest.mark.parametrize(
    ("device", "gpus", "backend"),
    [
        ("auto", None, "gloo"),
        ("cuda", 0.5, "gloo"),
        ("cuda", 1.0, "nccl"),
        ("auto", 1.0, "nccl"),
        ("cpu", 1.0, "gloo"),
    ],
)
def test_only_workers_with_a_gpu_of_nvidia_or_amd_each_use_nccl(device: str, gpus: float | None, backend: str) -> None:
    """NCCL refuses two processes on one GPU, and knows no processors."""
    assert backend_of({"CPU": 1.0} if gpus is None else {"CPU": 1.0, "GPU": gpus}, device) == backend
