"""Schedules whose virtual stages lie in the shape of a V, and schedules that a file lists: the bits of one device."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from alray.config.loading.load import load_spec
from alray.core.errors import SpecError
from alray.core.run_folder.records import StageRecord, read
from alray.orchestrate import Finished
from alray.planning.prediction.plan import Plan
from alray.planning.schedules.actions import parse
from alray.report.lanes import action_of
from alray.report.timeline import predicted_lanes
from alray.submit.package import package

from .conftest import Workshop

pytestmark = pytest.mark.long

SPEC = """
name: placement
seed: 3
data: {source: synthetic, shape: [12], classes: 4, samples: 130, batch_size: 24, validation_fraction: 0.2}
model:
  components:
    - {block: linear, width: 16, repeat: 5}
    - {block: linear, width: 8}
method: {kind: backpropagation}
optimizer: {kind: sgd, lr: 0.1, momentum: 0.9}
pipeline:
  micro_batches: 6
  costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost, *cost, *cost, *cost]
run: {steps: 8, evaluate_every: 4 steps}
"""
MINE = """\
0F0,0F1,0F2,3F0,3B0,0F3,3F1,3I1,0B0,0F4,3F2,3B2,0F5,0B1,3W1,3F3,3B3,0B2,3F4,3B4,0B3,3F5,3B5,0B4,0B5
1F0,2F0,1F1,2F1,1F2,2F2,2B0,1B0,2B1,1B1,1F3,2F3,2I2,1B2,2W2,1F4,2F4,2B3,1B3,1F5,2F5,2B4,1B4,2B5,1B5
"""
"""A V on two stages, whole backwards and split ones: 3W1 comes after 3B2 has added its gradient, so bits differ."""
IN_ORDER = MINE.replace(",3B2,", ",3I2,").replace("3W1,3F3", "3W1,3W2,3F3")
BACKWARDS = """\
0F0,0F1,0F2,0F3,0F4,0F5,0B5,0B4,0B3,0B2,0B1,0B0
1F0,1F1,1F2,1F3,1F4,1F5,1B5,1B4,1B3,1B2,1B1,1B0
"""
LAYOUTS = [("zb_v", 2), ("zb_v", 3), ("dualpipe_v", 2), ("dualpipe_v", 3), ("mine.csv", 2)]


@pytest.fixture
def placed(tmp_path: Path) -> Workshop:
    return workshop_in(tmp_path)


def workshop_in(folder: Path) -> Workshop:
    workshop = Workshop(folder, SPEC)
    (folder / "mine.csv").write_text(IN_ORDER)
    (folder / "backwards.csv").write_text(BACKWARDS)
    return workshop


@pytest.fixture(scope="module")
def one_device(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return workshop_in(tmp_path_factory.mktemp("one")).run("pipeline.schedule=gpipe", "pipeline.stages=1")


def on(schedule: str, stages: int | None = None, micro_batches: int = 6) -> list[str]:
    """The overrides of a layout. Three stages of dualpipe_v need six micro-batches."""
    given = [] if stages is None else [f"pipeline.stages={stages}"]
    return [f"pipeline.schedule={schedule}", f"pipeline.micro_batches={micro_batches}", *given]


def same(run: Finished, one_device: Finished) -> None:
    assert run.error is None, run.error
    assert run.summary.weights_sha256 == one_device.summary.weights_sha256
    assert run.summary.accuracy == one_device.summary.accuracy
    assert run.summary.accuracy_per_depth == one_device.summary.accuracy_per_depth


def plan_of(run: Finished) -> Plan:
    return Plan.from_json(json.loads((Path(run.summary.run_dir) / "plan.json").read_text()))


@pytest.mark.few
@pytest.mark.parametrize(("schedule", "stages"), LAYOUTS)
def test_in_one_process(placed, one_device, schedule, stages) -> None:
    run = placed.run(*on(schedule, stages))
    same(run, one_device)
    assert (run.summary.schedule, run.summary.stages) == (schedule, stages)
    neighbours = {f"{one}->{other}" for one in range(stages) for other in range(stages) if abs(one - other) == 1}
    assert set(run.summary.bytes_sent) == neighbours == {edge.edge for edge in plan_of(run).edges}


@pytest.mark.few
@pytest.mark.parametrize(("schedule", "stages"), LAYOUTS)
def test_between_processes(placed, one_device, processes, schedule, stages) -> None:
    """The stages compute what the plan draws, in this order."""
    run = placed.run(*on(schedule, stages), inline=False)
    same(run, one_device)
    plan = plan_of(run)
    records = [
        record for record in read(Path(run.summary.run_dir) / "records.jsonl") if isinstance(record, StageRecord)
    ]
    for stage, lane in enumerate(predicted_lanes(plan, 6)):
        spans = [span.action for record in records if record.stage == stage for span in record.spans]
        drawn = [bar.action for bar in lane.bars if action_of(bar)]
        assert computed(spans) == computed(drawn) != []


def computed(actions: list[str]) -> list[str]:
    """The forwards, backwards and updates of mini-batch 5, counted from 0."""
    named = [each for each in actions if re.fullmatch(r"\d+[A-Z]\d.*", each)]
    return [each for each in named if parse(each).batch == 5 and parse(each).kind in "FBIGU"]


def test_stages_may_take_micro_batches_in_other_orders(placed, one_device, processes) -> None:
    """Stage 1 begins with micro-batch 1, which comes second, and so do the backwards of stage 0."""
    (placed.folder / "mine.csv").write_text(
        "0F0,0F1,0F2,0F3,0F4,0F5,0I1,0I0,0W0,0W1,0B2,0B3,0B4,0B5\n1F1,1F0,1I1,1I0,1W0,1W1,1F2,1B2,1F3,1B3,1F4,1B4,1F5,1B5"
    )
    same(placed.run(*on("mine.csv"), inline=False), one_device)


def test_one_stage_needs_no_v(placed, one_device) -> None:
    same(placed.run(*on("zb_v", 1)), one_device)


def test_fewer_micro_batches_than_the_v_is_long(placed) -> None:
    reference = placed.run(*on("gpipe", 1, 2), name="one")
    same(placed.run(*on("zb_v", 3, 2)), reference)


@pytest.mark.few
@pytest.mark.parametrize("content", [MINE, BACKWARDS])
def test_another_order_of_the_sums_is_the_users_own(placed, one_device, content) -> None:
    """The list says in which order gradients are added up, so the last bits depend on it, and a resume tells it."""
    (placed.folder / "mine.csv").write_text(content)
    run = placed.run(*on("mine.csv"), "run.steps=4")
    assert run.summary.weights_sha256 != one_device.summary.weights_sha256
    with pytest.raises(SpecError, match="have another order"):
        placed.resume("run.steps=8", *on("1f1b", 2), "pipeline.virtual_stages=null", "pipeline.partition=auto")
    again = placed.resume("run.steps=8")
    assert again.error is None
    assert again.summary.weights_sha256 == placed.run(*on("mine.csv"), name="whole").summary.weights_sha256


def test_a_run_folder_needs_no_file(placed, one_device, processes) -> None:
    """What the file said is in the spec of the run: the file may change or go, and other schedules may follow."""
    placed.run(*on("mine.csv"), "run.steps=3", inline=False)
    (placed.folder / "mine.csv").write_text("gone")
    placed.resume("run.steps=5")
    (placed.folder / "mine.csv").unlink()
    layout = load_spec(placed.folder / "run" / "spec.yaml").spec.pipeline
    assert (layout.stages, layout.micro_batches) == (2, 6)
    placed.resume("run.steps=6", *on("dualpipe_v", 3), allow_change=True)
    same(placed.resume("run.steps=8", *on("zb_v", 2), inline=False), one_device)


def test_a_job_takes_the_file_along(placed) -> None:
    found = package(placed.spec, ["pipeline.schedule=mine.csv"], (), allow_code=False)
    assert {file.name for file in found.files} == {"tiny.yaml", "mine.csv"}


def test_the_layout_follows_from_the_file(placed) -> None:
    spec = load_spec(placed.spec, ["pipeline.schedule=mine.csv", "pipeline.micro_batches=null"]).spec
    assert (spec.pipeline.stages, spec.virtual_stages, spec.micro_batches) == (2, 2, 6)
    assert spec.schedule_name == "mine.csv"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("pipeline.stages=3", "`mine.csv` is for 2 stages, got 3"),
        ("pipeline.micro_batches=4", "`mine.csv` is for 6 micro-batches, got 4"),
        ("pipeline.virtual_stages=1", "`mine.csv` has 2 virtual stages on each stage, got 1"),
        ("pipeline.partition=[3,3]", r"\[3, 3\] has 2 entries"),
        ("data.batch_size=20", "cannot be cut into 6 equal micro-batches"),
        ("method=associated_learning", "it is not one for|is not a schedule for associated_learning"),
    ],
)
def test_what_contradicts_the_file_is_refused(placed, override, message) -> None:
    with pytest.raises(SpecError, match=message):
        load_spec(placed.spec, ["pipeline.schedule=mine.csv", override])


def test_a_file_that_is_not_there_is_refused(placed) -> None:
    with pytest.raises(SpecError, match=r"pipeline.schedule: there is no file `.*other.csv`"):
        load_spec(placed.spec, ["pipeline.schedule=other.csv"])


def test_a_file_that_cannot_run_is_refused_with_the_spec(placed) -> None:
    (placed.folder / "mine.csv").write_text("0F0,0B0\n1F0,1F0\n")
    with pytest.raises(
        SpecError, match=r"mine.csv, row 2: micro-batch 0 of virtual stage 1 has `1F0`, `1F0`"
    ) as caught:
        load_spec(placed.spec, ["pipeline.schedule=mine.csv"])
    assert caught.value.problems[0].key == "pipeline.schedule"
