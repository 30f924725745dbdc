"""A run that is stopped and goes on ends in the same bits, on any stages, in either engine."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from alray.api.reproduction import reproduce_run
from alray.core.errors import CheckpointError, SpecError
from alray.core.run_folder.records import StepRecord, effective, read, read_environment
from alray.core.run_folder.store import latest_manifest
from alray.orchestrate import Options
from alray.report.compare import ComparedRun
from alray.runtime.graph.inline import InlineGraph
from alray.studies.listing import rows_in

from .conftest import Asked, Watching
from .test_same_bits import CYCLIC, PARTITIONS, cyclic, same

WITH_A_WORKER = 14
"""For every stop a worker would take seconds to start; tests/data has one that begins in the middle of an epoch."""
SOME = (4, 5, 20)
"""With an evaluation; with a checkpoint; the last but one, which has both."""


def stop_at(step: int) -> tuple[Watching, Asked]:
    """Ask for a stop once stage 0 has done this many mini-batches."""
    asked = Asked()

    def look(statuses) -> None:
        if statuses[0].step >= step:
            asked.count = max(asked.count, 1)

    return Watching(on_statuses=look), asked


@pytest.fixture
def stopping(monkeypatch):
    """`stopping(k)`: the next inline run is asked to stop exactly after mini-batch k; `stopping(None)`: never."""
    from alray.runtime.stage.leader import Leader

    original = Leader.cut_after

    def arrange(step: int | None) -> Asked:
        asked = Asked()

        def cut_after(self, at: int) -> int:
            if step is not None and at >= step:
                self._control.stop_requested = True
                asked.count = 1
            return original(self, at)

        monkeypatch.setattr(Leader, "cut_after", cut_after)
        return asked

    return arrange


@pytest.mark.parametrize(
    "step",
    [step if step in SOME else pytest.param(step, marks=pytest.mark.full) for step in range(1, 21)],
)
def test_stopped_after_any_mini_batch(workshop, reference, stopping, step) -> None:
    chance = random.Random(step)
    first = workshop.run(f"pipeline.partition={chance.choice(PARTITIONS)}", asked=stopping(step))
    assert first.summary.status == "interrupted"
    assert first.summary.steps == step
    stopping(None)
    workers = int(step == WITH_A_WORKER)
    second = workshop.resume(f"pipeline.partition={chance.choice(PARTITIONS)}", f"data.workers={workers}")
    same(second, reference)
    assert second.summary.steps == 21


@pytest.mark.few
@pytest.mark.parametrize("schedule", ["streamed", "parallel_backward"])
def test_to_virtual_stages_and_back(workshop, reference, stopping, processes, schedule) -> None:
    """Checkpoints are by component: those of a ring go on in a line, and the other way round."""
    first = workshop.run(*cyclic(*CYCLIC[0]), f"pipeline.schedule={schedule}", asked=stopping(6))
    assert (first.summary.status, first.summary.steps) == ("interrupted", 6)
    second = workshop.resume("pipeline.partition=[1,3]", "pipeline.virtual_stages=null", asked=stopping(11))
    assert (second.summary.status, second.summary.steps, second.summary.partition) == ("interrupted", 11, [1, 3])
    stopping(None)
    last = workshop.resume(*cyclic(*CYCLIC[0]), "pipeline.in_flight=1", inline=False)
    same(last, reference)
    assert last.summary.partition == [1, 1, 1, 1]


@pytest.mark.full
def test_stopped_again_and_again(workshop, reference, stopping) -> None:
    workshop.run("pipeline.partition=[4]", asked=stopping(2))
    for step in (5, 9, 10, 16):
        run = workshop.resume(f"pipeline.partition={PARTITIONS[step % 8]}", asked=stopping(step))
        assert (run.summary.status, run.summary.steps) == ("interrupted", step)
    stopping(None)
    watching = Watching()
    same(workshop.resume("pipeline.schedule=overlapped", "run.deadline_s=40", watching=watching), reference)
    assert watching.plans[0].deadline_s == 40.0


@pytest.mark.full
def test_a_fused_optimizer_continues_in_the_same_bits(workshop, stopping) -> None:
    fused = "optimizer={kind: adam, fused: true, clip_norm: 1.0}"
    whole = workshop.run(fused, name="whole")
    workshop.run(fused, "pipeline.partition=[3,1]", asked=stopping(9))
    stopping(None)
    same(workshop.resume("pipeline.stages=1"), whole)


RECIPES = {
    "multi_step": ("lr_schedule={kind: multi_step, at: [1 epoch, 10 steps, 200 samples], warmup_epochs: 0.5}",),
    "rmsprop": (
        "optimizer={kind: torch, name: RMSprop, lr: 3e-3, centered: true, decay: weights, weight_decay: 0.01}",
        "lr_schedule={kind: linear, final_factor: 0.1}",
    ),
    "lamb": ("optimizer={kind: lamb, lr: 0.01, weight_decay: 0.01}",),
    "muon": ("optimizer={kind: muon, lr: 0.01, rate_factors: {b: 2, h: 0.5}}",),
    "muon, backpropagation": (
        "optimizer={kind: muon, lr: 0.01, rate_factors: {head: 2}}",
        "method=backpropagation",
        "pipeline.schedule=naive",
    ),
}
SOME_RECIPES = ("multi_step", "muon, backpropagation")


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(recipe, marks=[] if name in SOME_RECIPES else pytest.mark.full, id=name)
        for name, recipe in RECIPES.items()
    ],
)
def test_a_recipe_continues_in_the_same_bits_on_other_stages(workshop, stopping, recipe) -> None:
    whole = workshop.run(*recipe, "pipeline.stages=1", name="whole")
    workshop.run(*recipe, "pipeline.partition=[3,1]", asked=stopping(9))
    stopping(None)
    same(workshop.resume("pipeline.partition=[1,3]"), whole)


@pytest.mark.few
@pytest.mark.parametrize(("schedule", "free"), [("{kind: multi_step, at: [1 epoch]}", True), ("cosine", False)])
def test_only_a_schedule_that_does_not_end_with_the_run_lets_it_grow(workshop, schedule, free) -> None:
    workshop.run(f"lr_schedule={schedule}", "run.epochs=1")
    if free:
        assert workshop.resume("run.epochs=2").summary.steps == 14
    else:
        with pytest.raises(SpecError, match=r"run\.epochs"):
            workshop.resume("run.epochs=2")


@pytest.mark.full
def test_losses_of_a_resumed_run_are_those_of_an_unbroken_one(workshop, reference, stopping) -> None:
    def losses(run):
        records = effective(read(Path(run.summary.run_dir) / "records.jsonl"))
        return {record.step: record.losses for record in records if record.kind == "step"}

    workshop.run(asked=stopping(6))
    stopping(None)
    resumed = workshop.resume("pipeline.partition=[2,2]")
    assert losses(resumed) == losses(reference)
    assert sorted(losses(resumed)) == list(range(1, 22))


@pytest.mark.parametrize("bound", [(), ("run.stop_at={metric: validation_accuracy, above: 0.001}",)], ids=["", "bound"])
def test_evaluations_of_a_resumed_run_are_those_of_an_unbroken_one(workshop, stopping, bound) -> None:
    """A stop is not the end of the run, although an evaluation falls on it."""

    def evaluations(run):
        found = [record for record in read(Path(run.summary.run_dir) / "records.jsonl") if record.kind == "evaluation"]
        return [record.model_dump(exclude={"time_s", "duration_s"}) for record in found]

    keys = ("run.test=end", "run.evaluate_every=4 steps", *bound)
    whole = workshop.run(*keys, name="whole")
    workshop.run(*keys, asked=stopping(4))
    stopping(None)
    assert evaluations(workshop.resume()) == evaluations(whole)


def test_with_other_mini_batches_a_resume_asks_for_more_than_are_done(workshop, stopping) -> None:
    workshop.run(asked=stopping(12))  # of 21
    stopping(None)
    for length in ((), ("run.epochs=4",)):  # 9, and 12 again
        with pytest.raises(SpecError, match="the run has done 12 mini-batches"):
            workshop.resume("data.batch_size=32", *length, allow_change=True)
    assert workshop.resume("data.batch_size=32", "run.epochs=5", allow_change=True).summary.steps == 15


def test_a_reproduction_tells_what_resumes_changed(workshop) -> None:
    workshop.run("run.epochs=1")
    workshop.resume("optimizer.lr=0.1", "run.epochs=2", allow_change=True)
    workshop.resume("run.epochs=3")
    watching = Watching()
    again = Options(run_dir=workshop.folder / "again", pages=False)
    _, found = reproduce_run(workshop.folder / "run", [], again, watching, Asked(), inline=True)
    assert found is not None and not found.same
    assert "`optimizer.lr` from 0.003 to 0.1, after 7 mini-batches" in watching.notes[0]


@pytest.mark.full
def test_a_finished_run_stays_as_it_is(workshop, reference) -> None:
    """Another partition would be another plan, under which nothing was measured."""
    first = workshop.run("pipeline.stages=2", "run.epochs=20")
    assert first.summary.step_time_s is not None
    before = {path: path.stat().st_mtime_ns for path in (workshop.folder / "run").rglob("*")}
    watching = Watching()
    second = workshop.resume("pipeline.stages=3", watching=watching)
    assert second == first
    (note,) = watching.notes
    assert note.startswith("nothing is left to do: the run has finished after 140 mini-batches")
    assert watching.plans == watching.records == []
    assert {path: path.stat().st_mtime_ns for path in (workshop.folder / "run").rglob("*")} == before
    (workshop.folder / "run").rename(workshop.folder / "moved")
    assert workshop.resume(name="moved").summary.run_dir == str(workshop.folder / "moved")


def test_mathematics_is_left_alone(workshop) -> None:
    workshop.run("run.epochs=1")
    with pytest.raises(SpecError) as caught:
        workshop.resume("optimizer.lr=0.1", "data.batch_size=8", "pipeline.stages=2")
    message = str(caught.value)
    assert message.startswith(f"{workshop.folder / 'run'}: ") and "--allow-change" in message
    assert "`data.batch_size` from 16 to 8" in message and "`optimizer.lr` from 0.003 to 0.1" in message
    assert "pipeline.stages" not in message


class Killed(BaseException):
    """As a kill would, this ends a run in the middle."""


class KillingOncePlanned(Watching):
    def planned(self, plan) -> None:
        raise Killed


def test_a_resume_that_ends_before_it_trains_changes_nothing(workshop) -> None:
    workshop.run("run.epochs=1")
    hidden = (".run", ".lock")  # whose the folder is
    files = [path for path in (workshop.folder / "run").rglob("*") if path.is_file() and path.name not in hidden]
    before = {path: path.read_bytes() for path in files}
    changes = ("optimizer.lr=0.1", "run.epochs=2", "pipeline.stages=3")
    with pytest.raises(Killed):
        workshop.resume(*changes, watching=KillingOncePlanned(), allow_change=True)
    assert {path: path.read_bytes() for path in files} == before
    assert workshop.resume(*changes, allow_change=True).summary.status == "finished"
    assert b"lr: 0.1" in (workshop.folder / "run" / "spec.yaml").read_bytes()


TWINS = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        twins = {name: nn.Linear(128, 128) for name in ("a", "b")}
        super().__init__()
        for name, module in {"flat": nn.Flatten(), **twins, "last": nn.Linear(128, 4)}.items():
            self.add_module(name, module)
"""
"""Two layers of the same shape, so that the state of one could go to the other."""


def gathering(optimizer: str) -> tuple[str, ...]:
    """Of five mini-batches, the gradients of two wait for an update."""
    return f"optimizer={{{optimizer}, lr: 0.003, accumulate: 3}}", "run.epochs=null", "run.steps=5"


def frozen(layers: str, optimizer: str) -> tuple[str, ...]:
    model = f"model={{from: 'python:twins.Net', components: 1, freeze: {layers}}}"
    method = ("method={kind: backpropagation}", "pipeline.costs=[{forward_s: 1, backward_s: 1, update_s: 0}]")
    return model, *method, f"optimizer={{{optimizer}, lr: 0.01}}", "run.epochs=1"


@pytest.mark.parametrize(
    ("began", "changes", "told"),
    [
        *[
            (gathering(optimizer), (change, "run.steps=9"), f"optimizer: .* of component 0: .*{told}")
            for optimizer, change, told in (
                ("kind: adam", "optimizer.kind=adamw", "the state is that of adam, the optimizer is adamw"),
                ("kind: adam", "optimizer.accumulate=2", "the gradients of 2 mini-batches, and an update now takes 2"),
                (
                    "kind: torch, name: Adam",
                    "optimizer.name=NAdam",
                    "the state is that of Adam, the optimizer is NAdam",
                ),
            )
        ],
        *[
            (("run.epochs=1",), (change, "run.epochs=2", "pipeline.costs=null"), told)
            for change, told in (
                ("model.components.1.channels=[9]", "weights of component 1: .*size mismatch"),
                ("method={kind: backpropagation}", "weights of component 0: .*Unexpected key"),
                ("model.components=[{block: vgg, channels: [6]}]", "has 4 components, the network now has 1"),
            )
        ],
        *[
            (frozen(layers, optimizer), (f"model.freeze={now}", "run.epochs=2"), "component 0")
            for layers, now, optimizer in (
                ("[a]", "[b]", "kind: sgd, momentum: 0.9"),
                ("[a.weight]", "[a.bias]", "kind: adam"),
                ("[]", "[a]", "kind: adam"),
                ("[a]", "[]", "kind: sgd, ema_decay: 0.9"),
            )
        ],
    ],
)
def test_a_resume_that_does_not_fit_the_checkpoint_changes_nothing(workshop, began, changes, told: str) -> None:
    (workshop.folder / "twins.py").write_text(TWINS)
    workshop.run(*began)
    files = [workshop.folder / "run" / name for name in ("spec.yaml", "summary.json")]
    before = [file.read_bytes() for file in files]
    with pytest.raises(CheckpointError, match=told):
        workshop.resume(*changes, allow_change=True)
    assert [file.read_bytes() for file in files] == before


def cut_after_a(optimizer: str) -> tuple[str, ...]:
    """The same as two components, of which the first holds the layer `a` alone."""
    model, method, _, *others = frozen("[]", optimizer)
    cost = "{forward_s: 1, backward_s: 1, update_s: 0}"
    return model.replace("components: 1", "cut: [a]"), method, f"pipeline.costs=[{cost}, {cost}]", *others


def test_a_resume_that_freezes_a_whole_component_says_what_it_leaves_out(workshop) -> None:
    (workshop.folder / "twins.py").write_text(TWINS)
    run = workshop.run(*cut_after_a("kind: adam"))
    said = Watching()
    again = workshop.resume("model.freeze=[a]", "run.epochs=2", allow_change=True, watching=said)
    assert again.error is None and again.summary.weights_sha256 != run.summary.weights_sha256
    (told,) = (note for note in said.notes if "frozen" in note)
    assert told.startswith("what component 0 has trained is frozen now: checkpoints from here on leave out")
    with pytest.raises(CheckpointError, match="component 0: none of its parameters was trained"):
        workshop.resume("model.freeze=[]", "run.epochs=3", allow_change=True)


def test_a_component_that_a_resume_freezes_goes_on_with_the_weights_of_training(workshop) -> None:
    """And not with their moving average, with which the component above has never trained."""
    (workshop.folder / "twins.py").write_text(TWINS)
    found = []
    for name, optimizer in (("plain", "kind: adam"), ("averaged", "kind: adam, ema_decay: 0.9")):
        workshop.run(*cut_after_a(optimizer), name=name)
        watching = Watching()
        workshop.resume("model.freeze=[a]", "run.epochs=2", allow_change=True, watching=watching, name=name)
        losses = [record.losses for record in watching.records if isinstance(record, StepRecord)]
        frozen_file = max((workshop.folder / name / "checkpoints").iterdir()) / "component-00.safetensors"
        found.append((losses, frozen_file.read_bytes()))
    assert found[0] == found[1] and len(found[0][0]) == 7


def test_an_optimizer_that_a_hand_changed_ends_a_resume_before_it_changes_anything(workshop) -> None:
    workshop.run("run.epochs=1")
    spec = workshop.folder / "run" / "spec.yaml"
    spec.write_text(spec.read_text().replace("kind: adam", "kind: adamw"))
    summary = (workshop.folder / "run" / "summary.json").read_bytes()
    with pytest.raises(CheckpointError) as caught:
        workshop.resume("run.epochs=2", allow_change=True)
    assert caught.value.problems[0].key == "optimizer"
    assert (workshop.folder / "run" / "summary.json").read_bytes() == summary


def test_a_run_that_is_killed_after_it_was_extended_does_not_count_as_finished(workshop, reference) -> None:
    def kill(statuses) -> None:
        if statuses[0].step > 10:
            raise Killed

    workshop.run("run.epochs=1")
    run_dir = workshop.folder / "run"
    with pytest.raises(Killed):
        workshop.resume("run.epochs=3", watching=Watching(on_statuses=kill))
    assert ComparedRun(run_dir).status == "unfinished"
    (row,) = rows_in([run_dir])
    assert row.state != "finished" and row.test is None
    same(workshop.resume(), reference)


def test_a_resume_compares_the_devices_of_the_stages(workshop, stopping, monkeypatch) -> None:
    """On a cluster the driver may have no GPU: its processor was recorded, and the stages' GPUs were never compared."""
    there = {"device": "H100", "torch": "2.0", "alray": "0.3"}
    monkeypatch.setattr(InlineGraph, "environment", there)
    workshop.run("pipeline.partition=[2,2]", asked=stopping(6))
    manifest = latest_manifest(workshop.folder / "run")
    for recorded in (manifest["environment"], read_environment(workshop.folder / "run")):
        assert recorded.items() >= there.items() and recorded["engine"] == "inline"
    there["device"] = "A100"
    stopping(None)
    watching = Watching()
    workshop.resume("pipeline.partition=[1,3]", watching=watching)
    said = [note for note in watching.notes if note.startswith("the weights will")]
    assert said == ["the weights will not be bit-equal to those of an unbroken run: device was H100, is A100"]


def test_the_checkpoint_before_a_damaged_one(workshop, reference) -> None:
    import shutil

    workshop.run("run.epochs=2")
    shutil.rmtree(workshop.folder / "run/checkpoints/step-00000014")
    same(workshop.resume("run.epochs=3"), reference)


def test_what_a_killed_process_had_half_written_goes(workshop) -> None:
    workshop.run("run.epochs=1")
    run_dir = workshop.folder / "run"
    left = [run_dir / "plan.json.77.partial", run_dir / "checkpoints/step-00000007/component-00.safetensors.77.partial"]
    others = [run_dir / "report.html.77.partial", run_dir / "checkpoints/mine.partial"]
    for file in (*left, *others):
        file.write_bytes(b"half")
    assert workshop.resume("run.epochs=2").summary.status == "finished"
    assert [file.exists() for file in (*left, *others)] == [False, False, True, True]


@pytest.mark.full
def test_code_of_a_run_is_kept_with_it(workshop, reference, stopping) -> None:
    workshop.run(asked=stopping(3))
    (workshop.folder / "own_blocks.py").unlink()
    stopping(None)
    same(workshop.resume(allow_code=True), reference)


def test_a_run_killed_after_its_last_checkpoint_keeps_it(workshop, reference) -> None:
    """It is not written once more: another replica may still read it, and a second kill would leave half of it."""
    workshop.run()
    (workshop.folder / "run" / "summary.json").unlink()
    files = sorted((workshop.folder / "run" / "checkpoints").glob("*/*"))
    before = [file.stat().st_ino for file in files]
    run = workshop.resume()
    assert [file.stat().st_ino for file in files] == before
    assert (run.summary.status, run.summary.weights_sha256) == ("finished", reference.summary.weights_sha256)
    assert run.summary.accuracy == reference.summary.accuracy
