"""What a resume may change, and what the run folder keeps so that it need not change."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from alray.config.known_code import sha256
from alray.config.loading.load import dump_spec, load_spec
from alray.config.sections.spec import Spec
from alray.config.user_code import UserCode
from alray.core.errors import CheckpointError, SpecError
from alray.core.run_folder.data_identity import DataIdentity
from alray.core.run_folder.records import PlanRecord, write_json
from alray.core.run_folder.store import write_manifest
from alray.data.form import DataForm
from alray.runtime.planner.micro_batches import as_saved
from alray.runtime.runner.resume import Resumed
from alray.runtime.workload import Workload

PICTURES = """
name: resumed
data: {source: synthetic, shape: [1, 4, 4], classes: 3, samples: 64, batch_size: 16}
model:
  components: [{block: mlp, widths: [8]}, {block: mlp, widths: [8], repeat: 2}, {block: linear, width: 4}]
method: {kind: backpropagation}
run: {steps: 4}
"""
TEXT = PICTURES.replace(
    "{source: synthetic, shape: [1, 4, 4], classes: 3, samples: 64, batch_size: 16}",
    "{source: text_folder, train: ., batch_size: 16}",
).replace("components: [{block: mlp, widths: [8]},", "components: [{block: embedding, dim: 8},")
ON_TWO = ("pipeline.stages=2",)
"""`auto` is then 1f1b with four micro-batches."""

DATA = DataIdentity(train=64, validation=0, shape=(4,), classes="", words=None, contents=None)


def started(folder: Path, *overrides: str, text: str = PICTURES) -> Path:
    """The folder of a run that began with these overrides."""
    (folder / "given.yaml").write_text(text)
    spec = load_spec(folder / "given.yaml", overrides).spec
    run_dir = folder / "run"
    run_dir.mkdir()
    saved = dump_spec(as_saved(spec))
    (run_dir / "spec.yaml").write_text(saved)
    write_json(run_dir / "environment.json", {"given": {}, "spec_sha256": [sha256(saved.encode())]})
    return run_dir


def resumed(run_dir: Path, *overrides: str, allow_change: bool = False) -> Spec:
    return Resumed.open(run_dir, list(overrides), allow_change=allow_change).spec


@pytest.mark.few
@pytest.mark.parametrize(
    ("began", "overrides", "schedule"),
    [
        (ON_TWO, (), "1f1b"),
        (ON_TWO, ("pipeline.stages=4",), "1f1b"),
        (ON_TWO, ("pipeline.stages=1",), "1f1b"),
        (ON_TWO, ("pipeline.schedule=gpipe", "pipeline.stages=3"), "gpipe"),
        (ON_TWO, ("pipeline.schedule=interleaved_1f1b",), "interleaved_1f1b"),
        (ON_TWO, ("pipeline.schedule=zero_bubble", "pipeline.virtual_stages=2"), "zero_bubble"),
        (ON_TWO, ("pipeline.partition=[1,2,1]", "pipeline.in_flight=2"), "1f1b"),
        ((), ("pipeline.schedule=naive", "pipeline.stages=2"), "naive"),
        (("pipeline.schedule=naive", *ON_TWO), ("pipeline.schedule=single", "pipeline.stages=1"), "single"),
    ],
)
def test_another_layout_keeps_the_micro_batches(tmp_path, began, overrides, schedule) -> None:
    run_dir = started(tmp_path, *began)
    before = load_spec(run_dir / "spec.yaml").spec
    after = resumed(run_dir, *overrides)
    assert (after.schedule, after.micro_batches) == (schedule, before.micro_batches)


@pytest.mark.few
@pytest.mark.parametrize(
    ("began", "overrides", "change"),
    [
        (ON_TWO, ("pipeline.micro_batches=8",), "from 4 to 8"),
        (ON_TWO, ("pipeline.micro_batches=auto",), "from 4 to auto"),
        (ON_TWO, ("pipeline.schedule=naive",), "from 4 to 1"),
        (ON_TWO, ("pipeline.schedule=single", "pipeline.stages=1"), "from 4 to 1"),
        (ON_TWO, ("pipeline={stages: 4}",), "from 4 to 8"),
        ((), ON_TWO, "from 1 to 4"),
        (  # 16 micro-batches make no whole rounds on 3 stages, so these would have another number
            ("pipeline.schedule=zero_bubble", "pipeline.micro_batches=16", *ON_TWO),
            ("pipeline.stages=3", "data.batch_size=96"),
            "from 16 to 6",
        ),
    ],
)
def test_other_micro_batches_are_refused(tmp_path, began, overrides, change) -> None:
    run_dir = started(tmp_path, *began)
    with pytest.raises(SpecError) as caught:
        resumed(run_dir, *overrides)
    assert f"`pipeline.micro_batches` {change} " in str(caught.value)
    assert resumed(run_dir, *overrides, allow_change=True).name == "resumed"


def test_gpipe_keeps_the_micro_batches_on_any_stages(tmp_path) -> None:
    run_dir = started(tmp_path, *ON_TWO)
    hint = ("pipeline.schedule=gpipe", "pipeline.micro_batches=4")
    for stages in range(1, 5):
        assert resumed(run_dir, *hint, f"pipeline.stages={stages}").micro_batches == 4


def test_an_order_of_a_file_is_kept_by_what_the_file_lists(tmp_path) -> None:
    """No schedule with a name has it. The name of the file is nothing to it."""
    for name in ("mine.csv", "other.csv"):
        (tmp_path / name).write_text("0F1,0F0,0B0,0B1\n1F1,1B1,1F0,1B0\n")
    run_dir = started(tmp_path, f"pipeline.schedule={tmp_path / 'mine.csv'}")
    assert resumed(run_dir, f"pipeline.schedule={tmp_path / 'other.csv'}").schedule_name == "other.csv"
    with pytest.raises(SpecError, match="another order"):
        resumed(run_dir, "pipeline.schedule=gpipe", "pipeline.micro_batches=2")


def test_text_is_padded_in_pipelines_alone(tmp_path) -> None:
    run_dir = started(tmp_path, text=TEXT)
    with pytest.raises(SpecError, match=r"`pipeline.schedule` from single to naive \(a pipeline pads text"):
        resumed(run_dir, "pipeline.schedule=naive", "pipeline.stages=2")
    (tmp_path / "naive").mkdir()
    run_dir = started(tmp_path / "naive", "pipeline.schedule=naive", "pipeline.stages=2", text=TEXT)
    assert resumed(run_dir, "pipeline.stages=1").schedule == "naive"
    with pytest.raises(SpecError, match=r"`pipeline.schedule` from naive to single \(a pipeline pads text"):
        resumed(run_dir, "pipeline.schedule=single", "pipeline.stages=1")


def test_only_schedules_that_cut_mini_batches_are_kept(tmp_path) -> None:
    def kept(*overrides: str) -> tuple[str, object]:
        pipeline = as_saved(load_spec(tmp_path / "given.yaml", overrides).spec).pipeline
        return pipeline.schedule, pipeline.micro_batches

    (tmp_path / "given.yaml").write_text(PICTURES)
    assert kept(*ON_TWO) == ("1f1b", 4)
    assert kept() == ("auto", None)
    assert kept("pipeline.schedule=naive", *ON_TWO) == ("naive", None)
    assert kept("method=associated_learning", *ON_TWO) == ("auto", None)


def notes(
    run_dir: Path, *overrides: str, partition: tuple[int, ...], on_cpu: bool, device: str = "here", replicas: int = 1
) -> list[str]:
    """What a resume of a run says of its weights."""
    here = {"device": "here", "torch": "2", "brought_by": {}}
    (run_dir / "checkpoints/step-00000001").mkdir(parents=True, exist_ok=True)
    write_manifest(run_dir, step=1, epoch=0.2, samples=16, partition=(2, 2), files=(), environment=here, data=DATA)
    resumed = Resumed.open(run_dir, list(overrides), allow_change=True)
    return resumed.notes(
        SimpleNamespace(partition=partition, replicas=replicas), {**here, "device": device}, on_cpu=on_cpu
    )


def test_a_resume_says_where_bits_may_differ(tmp_path) -> None:
    run_dir = started(tmp_path, *ON_TWO)
    assert notes(run_dir, partition=(2, 2), on_cpu=False) == []
    assert notes(run_dir, partition=(1, 1, 2), on_cpu=True) == []
    (rounding,) = notes(run_dir, "pipeline.stages=3", partition=(1, 1, 2), on_cpu=False)
    assert "up to rounding" in rounding
    assert "ran on `1f1b`, partition [2, 2], and continues with `1f1b`, partition [1, 1, 2]" in rounding
    (elsewhere,) = notes(run_dir, partition=(2, 2), on_cpu=True, device="there")
    assert "device was here, is there" in elsewhere
    (otherwise,) = notes(run_dir, "pipeline.micro_batches=8", partition=(2, 2), on_cpu=True)
    assert "`pipeline.micro_batches` from 4 to 8" in otherwise
    changes = ("optimizer.lr=0.5", "seed=7", "name=other", "run.max_failures=9")
    other_rate, other_seed = sorted(notes(run_dir, *changes, partition=(2, 2), on_cpu=True))
    assert "will not be those of an unbroken run" in other_rate and "`optimizer.lr` from" in other_rate
    assert "`seed` from" in other_seed


def test_messages_that_round_otherwise_are_refused(tmp_path) -> None:
    run_dir = started(tmp_path, *ON_TWO, "method=decoupled_greedy")
    with pytest.raises(SpecError, match="what components send each other would be rounded otherwise"):
        resumed(run_dir, "pipeline.messages={compression: int8}")


@pytest.mark.parametrize(
    ("count", "compression", "noted"),
    [(2, "none", False), (4, "none", True), (2, "{kind: powersgd, start_iteration: 2}", True)],
)
def test_ddp_goes_on_otherwise_with_many_replicas_and_with_powersgd(tmp_path, count, compression, noted) -> None:
    replicas = f"replicas={{count: {count}, engine: ray_train, compression: {compression}}}"
    run_dir = started(tmp_path, replicas, "pipeline.stages=1")
    told = notes(run_dir, partition=(4,), on_cpu=True, replicas=count)
    assert ["torch's DDP" in note for note in told] == [True] * noted


def test_after_a_lost_node_a_resume_on_all_replicas_says_what_they_continue_from(tmp_path, monkeypatch) -> None:
    run_dir = started(tmp_path, "replicas={count: 2, synchronise: {average_every: 2 steps}}", "pipeline.stages=1")
    plans = {0: SimpleNamespace(replicas=1), 1: SimpleNamespace(replicas=2)}  # the checkpoint is of one mini-batch
    monkeypatch.setattr("alray.runtime.runner.resume.recorded_plans", lambda file: plans)
    (note,) = notes(run_dir, partition=(4,), on_cpu=True, replicas=2)
    assert "all replicas continue from the mean" in note and note.endswith("1 replica")
    assert notes(run_dir, partition=(4,), on_cpu=True, replicas=1) == []


def test_another_metric_makes_no_other_run(tmp_path) -> None:
    assert resumed(started(tmp_path), "task.metric=macro_f1").task.measures.name == "macro_f1"


@pytest.mark.parametrize("epoch", [0.0, 1e-320, 9.0])
def test_a_manifest_of_no_possible_epoch_is_named(tmp_path, epoch: float) -> None:
    run_dir = started(tmp_path)
    (run_dir / "checkpoints/step-00000004").mkdir(parents=True)
    write_manifest(run_dir, step=4, epoch=epoch, samples=64, partition=(4,), files=(), environment={}, data=DATA)
    with pytest.raises(CheckpointError, match="its step and its epoch do not fit each other; delete the folder"):
        resumed(run_dir)


def test_a_damaged_summary_is_named(tmp_path) -> None:
    run_dir = started(tmp_path)
    workload = Workload.open(load_spec(run_dir / "spec.yaml").spec, UserCode(run_dir))
    write_json(run_dir / "sample.json", DataForm.of(workload.data).model_dump(mode="json"))
    (run_dir / "checkpoints/step-00000004").mkdir(parents=True)
    epoch, identity = 4 / workload.facts.steps_per_epoch, workload.facts.identity
    write_manifest(run_dir, step=4, epoch=epoch, samples=64, partition=(4,), files=(), environment={}, data=identity)
    (run_dir / "summary.json").write_text('{"status": "fin')
    with pytest.raises(CheckpointError, match=r"summary.json:1: not JSON: .*; restore it, or delete it"):
        Resumed.open(run_dir, [], allow_change=False).finished(workload, print)


def test_a_damaged_plan_is_named_before_anything_is_trained(tmp_path) -> None:
    run_dir = started(tmp_path)
    damaged = PlanRecord(step=0, epoch=0.0, samples=0, time_s=0.0, plan={"stage_plans": ["not a plan"]})
    (run_dir / "records.jsonl").write_text(damaged.model_dump_json() + "\n")
    with pytest.raises(CheckpointError, match=r"records.jsonl: a plan in these records is damaged: "):
        assert Resumed.open(run_dir, [], allow_change=False).spent_s


def test_local_losses_have_the_same_bits_in_every_layout(tmp_path) -> None:
    run_dir = started(tmp_path, "method=associated_learning", *ON_TWO)
    assert notes(run_dir, partition=(1, 3), on_cpu=False) == []
