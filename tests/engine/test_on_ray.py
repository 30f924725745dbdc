"""Runs on a Ray cluster: the same bits as without it, traces, processes that are killed or stopped, Ray Train.

A stage on Ray costs three seconds of a processor before its first mini-batch. So the other files of this folder test
what they can in one process or between plain processes, and this one that Ray runs the same code to the same bits.
"""

# ruff: noqa: F401, F811 - fixtures of the other files are used here too

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import ray

from alray.core.run_folder.records import read
from alray.orchestrate import Finished
from alray.report.make import make_report
from alray.runtime.graph.ray_graph import RayGraph
from alray.runtime.stage.telemetry import StageStatus

from .conftest import LONG, Watching, Workshop
from .test_data_parallel import DDP
from .test_messages import BACKPROPAGATION, COMPRESSIONS, messages
from .test_profile import profiled, ranges
from .test_replicas import BP, SGD, SLOW, distance, replicas, replicated
from .test_resume import stop_at, stopping
from .test_same_bits import CYCLIC, METHODS, PARTITIONS, cyclic, of_family, reference_of, same

pytestmark = pytest.mark.ray


@pytest.fixture
def victims(monkeypatch):
    """Process ids of the stages of the graph that was started last, by stage; the driver asks them more often."""
    monkeypatch.setattr("alray.runtime.runner.driver.POLL_S", 0.1)
    processes: dict[int, int] = {}
    start = RayGraph.start

    def started(self, assignments) -> None:
        start(self, assignments)
        processes.clear()
        processes.update({index: location.pid for index, location in enumerate(self._locations)})

    monkeypatch.setattr(RayGraph, "start", started)
    return processes


@dataclass
class Striking(Watching):
    """Sends a signal to one stage after another, each in a separate attempt.

    strikes: (stage, mini-batches that stage 0 must have done by then, signal), in this order.
    """

    victims: dict[int, int] = field(default_factory=dict)
    strikes: list[tuple[int, int, int]] = field(default_factory=list)
    struck: list[int] = field(default_factory=list)
    """Process ids."""

    def statuses(self, statuses: Sequence[StageStatus]) -> None:
        if not self.strikes or not set(self.struck).isdisjoint(self.victims.values()):
            return  # the attempt that was struck has not ended yet
        stage, step, sign = self.strikes[0]
        if statuses[0].step >= step:
            del self.strikes[0]
            self.struck.append(self.victims[stage])
            os.kill(self.victims[stage], sign)


@pytest.mark.full  # `make test` has them in the tests below
@pytest.mark.parametrize(
    ("partition", "family", "method"),
    [
        ([2, 2], "transformer", "supervised_contrastive"),
        *[(partition, "vgg", "associated_learning") for partition in PARTITIONS],
        *[([1, 2, 1], family, "associated_learning") for family in ("resnet", "lstm", "transformer")],
    ],
    ids=str,
)
def test_same_bits(workshop, reference_of, local_ray, partition, family, method) -> None:
    run = of_family(workshop, family).run(*METHODS[method], f"pipeline.partition={partition}", inline=False)
    same(run, reference_of(family, method))
    assert run.summary.engine == "ray"


@pytest.mark.full  # tests/cli/test_interrupts.py resumes a run of Ray without it
@pytest.mark.timeout(240)
def test_from_ray_to_inline_and_back(workshop, longer_reference, local_ray, stopping) -> None:
    watching, asked = stop_at(4)
    first = workshop.run("pipeline.partition=[2,2]", *LONG, inline=False, watching=watching, asked=asked)
    assert first.summary.status == "interrupted"
    assert "after this mini-batch and its checkpoint" in watching.notes[-1]
    second = workshop.resume("pipeline.partition=[3,1]", asked=stopping(130))
    assert (second.summary.status, second.summary.steps) == ("interrupted", 130)
    stopping(None)
    same(workshop.resume("pipeline.partition=[4]", inline=False), longer_reference)


@pytest.mark.full  # `test_killed_and_stopped` has stages without a ring, test_same_bits.py rings that are resumed
@pytest.mark.timeout(240)
def test_a_stage_of_a_ring_is_killed(workshop, longer_reference, local_ray, victims) -> None:
    """Components in turns on two stages: the ring is closed anew, and ends in the bits of one stage."""
    watching = Striking(victims=victims, strikes=[(1, 17, signal.SIGKILL)])
    run = workshop.run(*cyclic(*CYCLIC[0]), *LONG, "pipeline.in_flight=1", inline=False, watching=watching)
    assert not watching.strikes, "the run was over before the stage was struck"
    (failure,) = run.summary.failures
    assert failure.message.startswith("stage 1 died")
    same(run, longer_reference)
    assert (run.summary.engine, run.summary.stages, run.summary.partition) == ("ray", 2, [1, 1, 1, 1])


@pytest.mark.full  # test_profile.py has traces of one process and of several without Ray
def test_every_stage_has_a_trace_and_the_bits_are_the_same(profiled, reference, local_ray) -> None:
    run = profiled.run("pipeline.partition=[3,1]", steps=(range(20, 22),), inline=False, name="run")
    same(run, reference)
    assert run.summary.engine == "ray"
    assert [name for name in ranges(run, 1) if name[0] == "1"] == [
        f"1{kind}{batch}" for batch in (19, 20) for kind in "FLBU"
    ]


@pytest.mark.full
def test_actors_are_named_for_run_replica_and_stage(workshop, local_ray) -> None:
    names: set[str] = set()

    def look(statuses: Sequence[StageStatus]) -> None:
        names.update(each["name"] for each in ray.util.list_named_actors(all_namespaces=True))

    workshop.run(*LONG, "pipeline.partition=[2,2]", inline=False, name="watched", watching=Watching(on_statuses=look))
    assert {re.sub("alray-[0-9a-f]+", "TOKEN", name) for name in names} == {
        f"watched-TOKEN-replica-0-stage-{stage}" for stage in (0, 1)
    }


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "strikes",
    [
        pytest.param([(0, 17, signal.SIGKILL)], id="killed"),
        # tests/runtime/runner/test_policy.py has a stage that does not answer
        pytest.param([(0, 17, signal.SIGKILL), (1, 40, signal.SIGSTOP)], id="and stopped", marks=pytest.mark.full),
    ],
)
def test_killed_and_stopped(workshop, longer_reference, local_ray, victims, monkeypatch, strikes) -> None:
    monkeypatch.setattr("alray.planning.prediction.make.LEAST_DEADLINE_S", 4.0)
    same(struck(workshop, victims, "[2,2]", strikes), longer_reference)


@pytest.mark.full
@pytest.mark.timeout(240)
def test_a_stage_without_a_flush_is_killed(workshop, local_ray, victims) -> None:
    """While two mini-batches are under way; the checkpoint has both versions of the weights."""
    late = ("method=backpropagation", "pipeline.schedule=2bw", "pipeline.stages=2")
    late += ("pipeline.micro_batch_norm=accept", "run.epochs=6", "model.components.2.sleep_s=0.02")
    expected = workshop.run(*late, name="undisturbed")
    watching = Striking(victims=victims, strikes=[(1, 17, signal.SIGKILL)])
    run = workshop.run(*late, inline=False, watching=watching)
    assert not watching.strikes and len(run.summary.failures) == 1
    same(run, expected)


@pytest.mark.full
@pytest.mark.timeout(400)
def test_each_stage_is_killed(workshop, longer_reference, local_ray, victims) -> None:
    strikes = [(stage, 20 * stage + 17, signal.SIGKILL) for stage in range(3)]  # each after another checkpoint
    same(struck(workshop, victims, "[1,2,1]", strikes), longer_reference)


def struck(workshop, victims, partition: str, strikes: list[tuple[int, int, int]], *overrides: str) -> Finished:
    """A run whose stages get signals: each failure is counted once, and no process is left."""
    overrides = (f"pipeline.partition={partition}", *overrides)
    watching = Striking(victims=victims, strikes=list(strikes))
    run = workshop.run(*overrides, *LONG, inline=False, watching=watching)
    assert not watching.strikes, "the run was over before every stage was struck"
    assert [failure.stage for failure in run.summary.failures] == [stage for stage, *_ in strikes]
    for (stage, _, sign), pid, failure in zip(strikes, watching.struck, run.summary.failures, strict=True):
        what = f"died (process {pid} on " if sign == signal.SIGKILL else "has not answered for "
        assert failure.message.startswith(f"stage {stage} {what}")
    assert not any(psutil.pid_exists(pid) for pid in [*watching.struck, *victims.values()])
    # Nothing of the work that was kept is missing in the figures, however late it was done before the signal.
    attempts = run.summary.attempts
    assert [each.ended_after for each in attempts] == [*(each.began_after for each in attempts[1:]), 140]
    assert len(attempts) == len(strikes) + 1
    unbroken = workshop.run(*overrides, LONG[0], inline=False, name="unbroken")
    assert run.summary.bytes_sent == unbroken.summary.bytes_sent
    return run


@pytest.mark.full  # test_driver.py counts failures; a trial of test_studies_on_ray.py fails with its first
def test_too_many_failures(workshop, longer_reference, local_ray, victims) -> None:
    watching = Striking(victims=victims, strikes=[(1, 1, signal.SIGKILL)])
    run = workshop.run("pipeline.partition=[2,2]", *LONG, "run.max_failures=0", inline=False, watching=watching)
    assert run.summary.status == "failed"
    assert "stage 1 died" in str(run.error)
    assert "run.max_failures" in str(run.error) and "`alray resume`" in str(run.error)
    same(workshop.resume(), longer_reference)


@pytest.mark.full  # test_replicas.py has replicas that resume, `test_killed_and_stopped` a stage that dies
@pytest.mark.timeout(240)
def test_a_replica_is_killed(replicated, local_ray, victims) -> None:
    """Two replicas of one stage, one of them killed on the way; the bits of one process."""
    overrides = [*SGD[0], *replicas(2, "replicas.all_reduce=ring", "replicas.shares=[22, 42]")]
    overrides += ["run={steps: 120, checkpoint: {every: 30 steps}}"]
    (replicated.folder / "slow.py").write_text(SLOW)
    block = "model.components.0={block: 'python:slow.Slow', sample_s: %g}"
    inline = replicated.run(*overrides, block % 0, name="inline")
    watching = Striking(victims=victims, strikes=[(1, 40, signal.SIGKILL)])
    run = replicated.run(*overrides, block % 5e-4, inline=False, watching=watching)
    assert watching.struck, "the run was over before the replica was killed"
    assert run.error is None, run.error
    (failure,) = run.summary.failures
    assert failure.message.startswith("stage 0 of replica 1 died")
    assert run.summary.weights_sha256 == inline.summary.weights_sha256


@pytest.mark.full
@pytest.mark.timeout(180)
def test_by_ray_train(replicated, local_ray, monkeypatch) -> None:
    """The run folder is as any other, and nothing of Ray Train is left."""
    from alray.runtime.ray_train.graph import TrainGraph
    from alray.runtime.ray_train.trainer import STORAGE

    locations = []
    close = TrainGraph.close
    monkeypatch.setattr(
        TrainGraph, "close", lambda self: (locations.extend(self._latest.locations.values()), close(self))[1]
    )
    one = replicated.run(*SGD[0], *BP, name="one")
    watching = Watching()
    run = replicated.run(*SGD[0], *DDP, *replicas(2), inline=False, watching=watching)
    assert distance(run, one) <= SGD[1]
    summary, folder = run.summary, Path(run.summary.run_dir)
    assert (summary.engine, summary.replicas, summary.shares, summary.steps) == ("ray_train", 2, [32, 32], 10)
    assert summary.accuracy == one.summary.accuracy
    assert summary.all_reduce_bytes == 2 * 10 * 4 * summary.parameters
    assert {record.kind for record in read(folder / "records.jsonl")} == {
        "plan", "event", "step", "stage", "evaluation", "checkpoint"
    }  # fmt: skip
    assert "Ray Train with torch&#39;s DDP" in make_report(folder).read_text(encoding="utf-8")
    assert len(locations) == 2 and not any(psutil.pid_exists(place.pid) for place in locations)
    assert not (folder / STORAGE).exists()


@pytest.mark.full  # test_messages.py has it between processes without Ray
@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_compressed_messages(messages: Workshop, local_ray: None, kind: str) -> None:
    """By local losses, and by backpropagation, whose gradients are compressed too."""
    compressed, cut = f"pipeline.messages={COMPRESSIONS[kind]}", "pipeline.partition=[1, 3]"
    for number, method in enumerate([(), BACKPROPAGATION]):
        inline = messages.run(compressed, *method, "pipeline.partition=[2, 2]", name=f"inline-{number}")
        same(messages.run(compressed, *method, cut, inline=False, name=f"ray-{number}"), inline)
