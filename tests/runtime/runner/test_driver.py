"""The driver with stages that take no time: failures, restarts, interrupts, records."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from alray.api.callbacks import Callback, Calls
from alray.core.errors import NonFiniteLoss, ReplicasDiffer, RunError, StageError, UserCodeError
from alray.core.run_folder.data_identity import DataIdentity
from alray.core.run_folder.records import effective, read
from alray.core.run_folder.store import ComponentFile, latest_manifest, manifests, mark
from alray.models.shape import Shape
from alray.planning.prediction.costs import ComponentCosts, Costs
from alray.runtime.observer import Observer
from alray.runtime.probe.other_programs import Machine
from alray.runtime.runner.driver import Driver
from alray.runtime.runner.recorder import Recorder
from alray.runtime.stage.assignment import Start
from alray.runtime.stage.telemetry import CheckpointPart, Losses, StageStatus
from alray.runtime.workload import DataFacts

from ...plans import plan_of as planned

TOTAL = 10
IDENTITY = DataIdentity(train=40, validation=4, shape=(4,), classes="", words=None, contents=None)
COMPONENT = ComponentCosts("fake", 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1, 4, 4, 8, 16, 64, 64, 64, (4,))
PLAN = planned(
    method="associated_learning",
    schedule="streamed",
    stages=2,
    replicas=1,
    partition=[1, 1],
    in_flight=2,
    costs=Costs("given", "fake", 1, 8, (COMPONENT, COMPONENT)),
    cores=None,
    steps_per_epoch=5,
    total_steps=TOTAL,
    evaluation_batches=0,
)


class LostAsAWhole(StageError):
    """What `FakeGraph.poll` raises instead of an answer."""


@dataclass
class FakeGraph:
    """Two stages; each poll is one mini-batch. `faults` says what happens at which step, once."""

    ends_what_hangs = True
    run_dir: Path
    faults: dict
    checkpoint_every: int = 3
    started: list = field(default_factory=list)
    closed: int = 0
    stopping: bool = False
    awaits: str = ""

    def start(self, assignments) -> None:
        self.step = assignments.step
        self.started.append(assignments.step)

    def poll(self, timeout_s: float):
        if self.awaits:
            waits = replace(self._status(1), activity="receive_wait")
            return [replace(self._status(0), activity="data", awaits=self.awaits), waits]
        fault = self.faults.get(self.step)
        if fault is not None:
            del self.faults[self.step]
            if isinstance(fault, LostAsAWhole):
                raise fault
            if isinstance(fault, str):  # a sample that does not come
                self.awaits = fault
                return self.poll(timeout_s)
            return [self._status(0), self._status(1, finished=True, dead=isinstance(fault, StageError), error=fault)]
        self.step += 1
        last = self.step == TOTAL or self.stopping
        reports = {stage: [self._losses(stage)] for stage in range(2)}
        if self.step % self.checkpoint_every == 0 or last:
            for stage in range(2):
                reports[stage].append(self._part(stage, last))
        return [self._status(stage, finished=last, reports=tuple(reports[stage])) for stage in range(2)]

    def _status(self, stage, **changes):
        return StageStatus(stage, 0, self.step, self.step, "compute", **changes)

    def _losses(self, stage):
        return Losses(self.step, {stage: {"associated": float(self.step)}}, 0.1, 0.0)

    def _part(self, stage, final):
        folder = self.run_dir / "checkpoints" / f"step-{self.step:08d}"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"component-{stage:02d}.safetensors"
        (folder / name).write_bytes(b"x")
        return CheckpointPart(self.step, (ComponentFile(name, "0", 1),), 0.0, final)

    def request_stop(self) -> None:
        self.stopping = True

    def close(self) -> None:
        self.closed += 1


@dataclass
class Quiet(Observer):
    notes: list = field(default_factory=list)
    count: int = 0
    at: int | None = None
    reason: str = "on request"
    error: Exception | None = None

    def clear(self) -> None: ...

    def of_callback(self, *, asked_before):
        return nullcontext()

    def statuses(self, statuses) -> None:
        if self.at is not None and statuses[0].step >= self.at:
            self.count = max(self.count, 1)

    def note(self, message) -> None:
        self.notes.append(message)


def recorder_of(tmp_path, observer, token="ours"):
    mark(tmp_path, "ours")
    return Recorder(
        tmp_path,
        facts=DataFacts(Shape((4,)), 2, 5, 40, IDENTITY),
        batch_size=8,
        keep=2,
        environment={},
        started_wall_s=0.0,
        observers=[observer.record],
        token=token,
    )


def drive(
    tmp_path,
    faults=None,
    *,
    max_failures=3,
    interrupt_at=None,
    replan=lambda plan: plan,
    token="ours",
    callbacks=(),
    machine=None,
    plan=PLAN,
):
    observer = Quiet(at=interrupt_at)
    calls = Calls(callbacks, str)
    with calls.beside(nullcontext((observer, observer))):
        recorder = recorder_of(tmp_path, calls, token)
    graphs = []

    def new_graph(plan):
        graphs.append(FakeGraph(tmp_path, faults if faults is not None else {}))
        return graphs[-1]

    driver = Driver(
        run_dir=tmp_path,
        plan=plan,
        total_steps=TOTAL,
        new_graph=new_graph,
        assign=lambda plan, start: start,
        replan=replan,
        recorder=recorder,
        observer=calls,
        interrupts=calls,
        max_failures=max_failures,
        machine=machine,
    )
    outcome = driver.run(Start())
    recorder.close()
    assert all(graph.closed == 1 for graph in graphs), "every graph is closed, once"
    return outcome, [graph.started[0] for graph in graphs], observer


def losses(tmp_path):
    return {r.step: r.losses for r in effective(read(tmp_path / "records.jsonl")) if r.kind == "step"}


def test_to_the_end(tmp_path) -> None:
    outcome, starts, _ = drive(tmp_path)
    assert (outcome.status, outcome.step, starts) == ("finished", TOTAL, [0])
    assert losses(tmp_path) == {k: {0: {"associated": k}, 1: {"associated": k}} for k in range(1, TOTAL + 1)}
    assert [m["step"] for m in manifests(tmp_path)] == [9, 10], "the newest two are kept"


def test_the_last_event_says_what_other_programs_took(tmp_path, monkeypatch) -> None:
    """Of four processors the two stages leave two free."""
    monkeypatch.setattr("alray.runtime.probe.other_programs.os.sched_getaffinity", lambda _: set(range(4)))
    machine = Machine()
    monkeypatch.setattr(machine, "other_processors", lambda: 3.5)
    drive(tmp_path, machine=machine)
    events = [record for record in read(tmp_path / "records.jsonl") if record.kind == "event"]
    assert [(each.event, each.taken_processors) for each in events][-1] == ("finished", 1.5)


def test_a_death_goes_on_from_the_last_checkpoint(tmp_path) -> None:
    outcome, starts, observer = drive(tmp_path, {5: StageError("stage 1 died")})
    assert (outcome.status, starts) == ("finished", [0, 3])
    (note,) = observer.notes
    assert note.startswith("stage 1 died") and "mini-batch 3" in note
    assert sorted(losses(tmp_path)) == list(range(1, TOTAL + 1))


def test_a_graph_that_is_lost_as_a_whole_goes_on_from_the_last_checkpoint(tmp_path) -> None:
    outcome, starts, observer = drive(tmp_path, {5: LostAsAWhole("Ray is gone")})
    assert (outcome.status, starts) == ("finished", [0, 3])
    (note,) = observer.notes
    assert note.startswith("Ray is gone") and "mini-batch 3" in note


def test_an_old_list_of_the_folder_misleads_nobody(tmp_path, monkeypatch) -> None:
    """As a client of NFS may have one for a minute."""
    monkeypatch.setattr("alray.core.run_folder.store._files", lambda run_dir: {})
    outcome, starts, _ = drive(tmp_path, {5: StageError("stage 1 died")})
    assert (outcome.status, outcome.step, starts) == ("finished", TOTAL, [0, 3])


def test_a_run_that_another_process_goes_on_with_ends_before_its_next_manifest(tmp_path) -> None:
    with pytest.raises(RunError, match="another process has started to continue this run"):
        drive(tmp_path, token="theirs")
    assert manifests(tmp_path) == []


def test_a_death_before_any_checkpoint_begins_anew(tmp_path) -> None:
    outcome, starts, _ = drive(tmp_path, {1: StageError("stage 1 died")})
    assert (outcome.status, starts) == ("finished", [0, 0])


def test_failures_count_from_the_newest_checkpoint(tmp_path) -> None:
    faults = {1: StageError("a"), 4: StageError("b"), 7: StageError("c")}
    outcome, starts, _ = drive(tmp_path, faults, max_failures=1)
    assert (outcome.status, starts) == ("finished", [0, 0, 3, 6])


class Always(dict):
    """A fault that comes back."""

    def __delitem__(self, key) -> None: ...


def test_giving_up(tmp_path) -> None:
    outcome, starts, _ = drive(tmp_path, Always({4: StageError("stage 1 died")}), max_failures=2)
    assert (outcome.status, outcome.step, starts) == ("failed", 3, [0, 3, 3])
    told = str(outcome.error)
    assert told.startswith("stage 1 died; ") and "failure 3 " in told and "mini-batch 3;" in told
    assert "run.max_failures" in told and "`alray resume`" in told


@pytest.mark.parametrize(("second", "starts"), [("sample 7", [0, 3]), ("sample 8", [0, 3, 3])])
def test_a_sample_that_does_not_come_twice_ends_the_run(tmp_path, second, starts) -> None:
    impatient = replace(PLAN, deadline_s=0.0)
    faults = Awaited({4: ["sample 7", second, "sample 8"]})
    outcome, began, _ = drive(tmp_path, faults, max_failures=9, plan=impatient)
    assert (outcome.status, outcome.lost, began) == ("failed", False, starts)
    assert "sample" in str(outcome.error)


class Awaited(dict):
    """At each step, what does not come in one attempt after the other."""

    def get(self, step):
        return self[step].pop(0) if step in self else None

    def __delitem__(self, step) -> None: ...


def test_what_would_fail_again_is_not_tried(tmp_path) -> None:
    outcome, starts, _ = drive(tmp_path, {4: NonFiniteLoss("component 1: the associated loss is nan")})
    assert (outcome.status, starts) == ("failed", [0])
    assert latest_manifest(tmp_path)["step"] == 3, "the last good checkpoint is kept"


def test_replicas_that_part_end_the_run_as_failed(tmp_path, monkeypatch) -> None:
    part = FakeGraph._part

    def parting(graph, stage, final):
        return replace(part(graph, stage, final), parameters=((0, str(stage if graph.step > 3 else 0)),))

    monkeypatch.setattr(FakeGraph, "_part", parting)
    outcome, starts, _ = drive(tmp_path)
    assert (outcome.status, outcome.step, starts) == ("failed", 3, [0])
    assert "report this as a bug" in str(outcome.error)
    assert "the replicas of component 0 do not hold the same parameters after mini-batch 6" in str(outcome.error)
    told = [record.event for record in read(tmp_path / "records.jsonl") if record.kind == "event"]
    assert told == ["failure", "failed"]


def test_replicas_that_part_name_their_component(tmp_path) -> None:
    recorder = recorder_of(tmp_path, Quiet())
    recorder.begin(replace(PLAN, replicas=2), 0)

    def part(component, sha256):
        return CheckpointPart(3, (), 0.0, False, ((component, sha256),))

    recorder.take([part(0, "same"), part(1, "one")], replica=0)
    with pytest.raises(ReplicasDiffer, match="the replicas of component 1"):
        recorder.take([part(0, "same"), part(1, "other")], replica=1)
    recorder.close()


def test_a_failure_that_cannot_be_written_is_still_the_one_that_is_told(tmp_path, monkeypatch) -> None:
    def full(recorder, event, message, **place):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Recorder, "event", full)
    with pytest.raises(NonFiniteLoss, match="component 1: the associated loss is nan"):
        drive(tmp_path, {4: NonFiniteLoss("component 1: the associated loss is nan")})


def test_an_interrupt_ends_after_a_checkpoint(tmp_path) -> None:
    outcome, _, observer = drive(tmp_path, interrupt_at=4)
    assert outcome.status == "interrupted"
    assert outcome.step == 5
    assert len(observer.notes) == 1


class Hearing(Callback):
    """Keeps the steps that it is told, and does something at one of them."""

    def __init__(self, at: int = 0, do=lambda self: None) -> None:
        self.steps, self.checkpoints = [], []
        self._at, self._do = at, do

    def on_step(self, record) -> None:
        self.steps.append(record.step)
        if record.step == self._at:
            self._do(self)

    def on_checkpoint(self, record) -> None:
        self.checkpoints.append(record.step)


def test_a_callback_hears_each_record_once_whatever_fails(tmp_path) -> None:
    hearing = Hearing()
    faults = {1: StageError("a"), 5: StageError("b"), 8: StageError("c")}
    outcome, starts, _ = drive(tmp_path, faults, callbacks=[hearing])
    assert (outcome.status, starts) == ("finished", [0, 0, 3, 6])
    assert hearing.steps == list(range(1, TOTAL + 1))
    assert hearing.checkpoints == [3, 6, 9, 10]


def test_a_callback_stops_a_run_after_a_checkpoint(tmp_path) -> None:
    hearing = Hearing(4, Hearing.stop)
    outcome, _, observer = drive(tmp_path, callbacks=[hearing])
    assert (outcome.status, outcome.step) == ("interrupted", 5)
    assert hearing.steps == [1, 2, 3, 4, 5] and hearing.checkpoints == [3, 5]
    assert observer.notes[0].startswith("stopping by callback `Hearing`, ")
    last = list(read(tmp_path / "records.jsonl"))[-1]
    assert (last.event, last.message) == ("interrupted", "stopped by callback `Hearing`, after a checkpoint")


@pytest.mark.parametrize("at", [4, TOTAL])
def test_what_a_callback_raises_ends_the_run_after_a_checkpoint(tmp_path, at) -> None:
    """Also at the last mini-batch, when there is nothing left to stop."""
    other, failing = Hearing(), Hearing(at, lambda self: 1 / 0)
    outcome, _, _ = drive(tmp_path, callbacks=[failing, other])
    assert (outcome.status, outcome.step) == ("failed", min(at + 1, TOTAL))
    assert isinstance(outcome.error, UserCodeError)
    problem = outcome.error.problems[0]
    assert "callback `Hearing` raised ZeroDivisionError in `on_step`" in problem.message
    assert problem.file == __file__
    assert failing.checkpoints == [3] * (at == 4) + [3, 6, 9] * (at == TOTAL)
    assert other.checkpoints[-1] == outcome.step, "the others hear all of it"
    last = list(read(tmp_path / "records.jsonl"))[-1]
    assert (last.event, last.message) == ("failed", str(outcome.error))


def test_no_room_left_is_told(tmp_path) -> None:
    def nowhere(plan):
        raise StageError("no node is left")

    outcome, starts, _ = drive(tmp_path, {4: StageError("stage 1 died")}, replan=nowhere)
    assert (outcome.status, starts, str(outcome.error)) == ("failed", [0], "no node is left")


@pytest.mark.parametrize("name", ["step-00000003.keep", "step-3", "step-best", "step-"])
def test_a_copy_beside_the_checkpoints_is_left_alone(tmp_path, name) -> None:
    """Under another name a folder belongs to the user, even with a manifest of an earlier mini-batch in it."""
    drive(tmp_path, interrupt_at=4)
    copy = shutil.copytree(tmp_path / "checkpoints/step-00000003", tmp_path / "checkpoints" / name)
    outcome, _, _ = drive(tmp_path)
    assert outcome.status == "finished"
    assert (copy / "manifest.json").is_file()
    assert [manifest["step"] for manifest in manifests(tmp_path)] == [9, 10]


def test_two_checkpoints_after_one_mini_batch(tmp_path) -> None:
    """An evaluation that reaches `stop_at` where a checkpoint was due. One poll may bring both parts of a stage."""
    graph, recorder = FakeGraph(tmp_path, {}), recorder_of(tmp_path, Quiet())
    graph.start(Start(step=1))
    recorder.begin(PLAN, 0)
    recorder.take([graph._part(0, final=False), graph._part(0, final=True)], replica=0)
    assert manifests(tmp_path) == [], "the other stage has written nothing yet"
    recorder.take([graph._part(1, final=False), graph._part(1, final=True)], replica=0)
    recorder.close()
    files = [entry["file"] for entry in latest_manifest(tmp_path)["files"]]
    assert files == ["component-00.safetensors", "component-01.safetensors"]


@pytest.mark.parametrize("step", [2, 8])
def test_an_unfinished_checkpoint_is_none(tmp_path, step) -> None:
    folder = tmp_path / "checkpoints" / f"step-{step:08d}"
    folder.mkdir(parents=True)
    (folder / "component-00.safetensors").write_bytes(b"half")
    assert latest_manifest(tmp_path) is None
    drive(tmp_path)
    assert not folder.exists(), "what an older attempt left is cleared away"
