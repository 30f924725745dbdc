"""plan: what would run where."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alray.data.batches import Batch
from alray.models.network import Network
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.plan import Plan
from alray.planning.schedules.table import schedules_for
from alray.runtime.probe.estimate import estimate_costs
from alray.runtime.probe.measure import Surroundings

from .conftest import COUNTED

GIVEN = "pipeline.costs=[" + ", ".join(["{forward_s: 0.001, backward_s: 0.002, update_s: 0.001}"] * 3) + "]"

ZERO_BUBBLE_COSTS = "pipeline.costs=[" + ", ".join(["{forward_s: 0.1, backward_s: 0.2, update_s: 0.01}"] * 3) + "]"


def test_a_counted_plan_says_that_it_is_estimated(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("plan", spec, COUNTED)
    assert said.code == 0
    assert [line.partition(" s: ")[2] for line in said.err.splitlines()][:1] == ["reading x.yaml"]
    assert said.out.startswith("tiny: associated_learning, streamed, 2 stages, partition [")
    assert "estimated by counting" in said.out and "(estimated)" in said.out
    assert all(line == line.rstrip() for line in said.out.splitlines())


def test_given_costs_in_tables_and_figures(
    alray: Callable[..., Any], spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})  # one for each stage
    lines = alray("plan", spec, GIVEN, "pipeline.partition=[1, 2]").out.splitlines()
    assert "    1      1 to 2  2.00 ms  4.00 ms  2.00 ms  8.00 ms" in lines
    assert "bound       8.00 ms" in lines
    assert any(line.startswith("limited by  stage 1 is 33 % slower") for line in lines)
    assert any(line.startswith("edge 0->1   ") and line.endswith("4 in flight") for line in lines)
    assert not any("(estimated)" in line for line in lines)


def test_a_rate_of_a_part_that_there_is_not(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("plan", spec, COUNTED, "optimizer.rate_factors={b: 2, head: 10}")
    assert said.code == 2
    assert "optimizer.rate_factors.head: no component has a part `head`" in said.err
    assert "`f`, `b`, `g` and `h`" in said.err


@pytest.mark.few
@pytest.mark.parametrize(
    "command",
    [
        ("plan", "--compare", "--probe"),
        ("plan", "--devices", "2x1GB", "--probe"),
        ("plan", "--map", "--devices", "2", "--link", "host", "--probe"),
        ("probe",),
    ],
)
def test_what_is_measured_for_several_layouts_suits_them(
    alray: Callable[..., Any], spec: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """Micro-batches, and what stages do to each other, are measured although the spec has one stage."""
    around: list[Surroundings] = []

    def probed(network: Network, batch: Batch, surroundings: Surroundings, **others: Any) -> Costs:
        around.append(surroundings)
        counted = estimate_costs(network, batch_size=len(batch.labels), device=surroundings.device)
        return replace(counted, source="probe")

    monkeypatch.setattr("alray.runtime.planner.planning.probe_costs", probed)
    monkeypatch.setattr("alray.runtime.planner.planning.time_action_overhead", lambda: 1e-5)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(4)))
    alone = ("method=backpropagation", "pipeline={micro_batch_norm: accept}")
    assert alray(command[0], spec, *alone, *command[1:]).code == 0
    assert any(each.pipeline for each in around) and {each.others for each in around} == {3}
    assert all(each.micro_batches > 1 for each in around if each.pipeline)


def test_a_layout_has_one_step_in_its_plan_and_in_a_comparison(
    alray: Callable[..., Any], spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison measures beside as many others as there are processors, a plan beside its own stages."""

    def probed(network: Network, batch: Batch, surroundings: Surroundings, **_: Any) -> Costs:
        counted = estimate_costs(network, batch_size=len(batch.labels), device=surroundings.device)
        others = surroundings.others
        return replace(counted, source="probe", contention=1.0 + 0.1 * others, beside=others, data_s=0.0)

    monkeypatch.setattr("alray.runtime.planner.planning.probe_costs", probed)
    monkeypatch.setattr("alray.runtime.planner.planning.Planner._data_s", lambda self, batches: 0.0)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)))
    asked = (COUNTED, "--probe", "--json")
    planned = alray("plan", spec, *asked).json
    rows = alray("plan", spec, *asked, "--compare").json["rows"]
    (row,) = [each for each in rows if each["schedule"] == planned["schedule"] and each["stages"] == 2]
    assert row["predicted_step_time_s"] == pytest.approx(planned["predicted_step_time_s"])


@pytest.mark.full
def test_a_probe_measures(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("plan", spec, COUNTED, "--probe")
    assert "costs measured" in said.out
    assert "estimated" not in said.out


@pytest.mark.full
def test_a_plan_without_data_says_what_it_assumes(alray: Callable[..., Any], spec: Path) -> None:
    missing = "data={source: torchvision, dataset: CIFAR10, root: nowhere, batch_size: 10}"
    for probe in ((), ("--probe",)):
        said = alray("plan", spec, COUNTED, missing, *probe)
        assert said.code == 0
        assert "without the data: 50,000 samples of shape [3, 32, 32] in 10 classes" in said.out
    plan = Plan.from_json(alray("plan", spec, COUNTED, missing, "--json").json)
    assert plan.steps_per_epoch == 4500
    assert plan.assumed is not None
    assert "50,000 samples" in alray("plan", spec, COUNTED, missing, "--compare").out
    folder = "data={source: image_folder, train: nowhere, image_size: 8, batch_size: 10}"
    assert alray("plan", spec, folder).code == 2
    assert alray("plan", spec, folder, "data.assume={classes: 3, samples: 100}").code == 0
    refused = alray("run", spec, folder, "data.assume={classes: 3, samples: 100}", "--inline")
    assert refused.code == 2 and "there is no folder" in refused.err


def test_json_is_the_plan(alray: Callable[..., Any], spec: Path) -> None:
    plan = Plan.from_json(alray("plan", spec, COUNTED, "pipeline.partition=[2, 1]", "--json").json)
    assert plan.partition == (2, 1)
    assert plan.costs.source == "estimated"


def test_the_schedule_is_drawn_into_a_file(alray: Callable[..., Any], spec: Path) -> None:
    assert alray("plan", spec, "--svg", "schedule.svg").out.endswith("drawn in  schedule.svg\n")
    assert Path("schedule.svg").read_text().startswith("<svg ")
    assert alray("plan", spec, "--svg", "nowhere/a.svg").code == 2


@pytest.mark.parametrize(
    "machines", ["{nodes: 2xA100, within: 1 GB/s}", "{nodes: [{device: A100, count: 2, link: 1 GB/s}]}"]
)
def test_links_of_a_map_that_change_nothing_are_refused(alray: Callable[..., Any], spec: Path, machines: str) -> None:
    said = alray("plan", "--map", spec, COUNTED, f"machines={machines}", "--link", "25GB/s", "--link", "1GB/s")
    assert said.code == 2 and "--link: it changes nothing" in said.errors


@pytest.mark.parametrize("option", ["--link", "--within"])
def test_a_link_of_no_machines_is_refused(alray: Callable[..., Any], spec: Path, option: str) -> None:
    said = alray("plan", spec, option, "25GB/s")
    assert said.code == 2 and "machines.nodes: " in said.errors


def test_schedules_and_stages_are_compared(
    alray: Callable[..., Any], spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))  # so that stages share no processors
    rows = alray("plan", spec, COUNTED, "--compare", "--json").json["rows"]
    ways = {(row["schedule"], row["stages"]) for row in rows}
    several = [schedule.name for schedule in schedules_for(local_losses=True)]
    assert ways == {("streamed", 1)} | {(schedule, stages) for schedule in several for stages in (2, 3)}
    steps = [round(row["predicted_step_time_s"], 9) for row in rows]
    assert steps == sorted(steps)
    said = alray("plan", spec, COUNTED, "--compare")
    assert said.code == 0
    assert [line.partition(" s: ")[2] for line in said.err.splitlines()][:1] == ["reading x.yaml"]
    assert said.out.startswith("tiny: associated_learning, on this machine\n")
    assert said.out.splitlines()[-1].startswith(f"run it with  alray run x.yaml {COUNTED} pipeline.schedule=")


def test_a_row_has_the_memory_of_its_stages(alray: Callable[..., Any], spec: Path) -> None:
    """A way that needs more than a stage has comes last."""
    rows = alray("plan", spec, COUNTED, "--compare", "--json").json["rows"]
    most = sorted(max(row["memory_bytes"]) for row in rows)[len(rows) // 2]
    limited = alray("plan", spec, COUNTED, f"resources.memory_bytes={most}", "--compare", "--json").json["rows"]
    fits = [row["fits"] for row in limited]
    assert len(set(fits)) == 2 and fits == sorted(fits, reverse=True)
    assert all((max(row["memory_bytes"]) <= most) == row["fits"] for row in limited)


def test_a_list_for_each_stage_is_for_one_number_of_them(alray: Callable[..., Any], spec: Path) -> None:
    asked = "resources.per_stage=[{CPU: 1}, {CPU: 2}]"
    rows = alray("plan", spec, COUNTED, asked, "pipeline.stages=2", "--compare", "--json").json["rows"]
    assert {row["stages"] for row in rows} == {2}
    several = alray("plan", spec, COUNTED, asked, "--compare")
    assert several.code == 2 and "resources.per_stage: this is a list for one number of stages" in several.errors


def test_a_schedule_of_a_file_is_searched_where_it_is_given(alray: Callable[..., Any]) -> None:
    own = Path(__file__).parents[2] / "examples" / "own_schedule.yaml"
    given = f"pipeline.schedule={own.with_suffix('.csv')}"
    (row,) = alray("plan", own, COUNTED, given, "--compare", "--json").json["rows"]
    assert row["schedule"] == "own_schedule.csv" and (row["stages"], row["micro_batches"]) == (2, 4)
    plan = alray("plan", own, *row["overrides"], "--json").json
    assert plan["predicted_step_time_s"] == row["predicted_step_time_s"]


RECOMPUTES = """
name: recomputes
data: {source: synthetic, shape: [8], classes: 4, samples: 100, batch_size: 16, validation_fraction: 0.2}
model: {components: [{block: linear, width: 8, repeat: 2}]}
method: backpropagation
pipeline:
  costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost]
  schedule: 1f1b
  stages: 2
  activation_checkpointing: true
run: {epochs: 1}
"""


def test_pipelines_that_recompute_are_searched(alray: Callable[..., Any], tmp_path: Path) -> None:
    """Schedules that cut no mini-batches have nothing to recompute, and are left out."""
    (tmp_path / "spec.yaml").write_text(RECOMPUTES)
    rows = alray("plan", tmp_path / "spec.yaml", "--devices", "2x4GB", "--json").json["rows"]
    assert {"1f1b", "gpipe", "zero_bubble"} <= {row["schedule"] for row in rows}


def test_a_comparison_and_what_fits_say_how_sure_they_are(alray: Callable[..., Any], spec: Path) -> None:
    words = (spec, COUNTED, "--on", "2xA100")
    plan = alray("plan", *words, "pipeline.partition=auto", "--json").json
    rows = alray("plan", *words, "--compare", "--json").json["rows"]
    (row,) = [row for row in rows if (row["schedule"], row["stages"]) == ("streamed", 2)]
    assert row["predicted_step_range_s"] == pytest.approx(plan["predicted_step_range_s"])
    said = alray("plan", *words, "--compare")
    assert " range " in said.out and " µs to " in said.out


@pytest.mark.parametrize(
    "given",
    [
        ("pipeline.links=[{bandwidth: 1 Mbit/s, latency: 20 ms}]",),
    ],
    ids=["links"],
)
def test_slow_links_and_stages_count_in_a_comparison(
    alray: Callable[..., Any], spec: Path, given: tuple[str, ...]
) -> None:
    words = ("plan", spec, COUNTED, *given, "--json")
    rows = alray(*words, "--compare").json["rows"]
    assert "links" not in given[0] or rows[0]["stages"] == 1  # any link takes longer than these components
    (row,) = [row for row in rows if (row["schedule"], row["stages"]) == ("streamed", 2)]
    plan = alray(*words, "pipeline.schedule=streamed", "pipeline.partition=auto").json
    assert row["predicted_step_time_s"] == plan["predicted_step_time_s"]


def test_what_cannot_run_is_told_above_the_comparison(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("plan", spec, COUNTED, "--compare", "method=backpropagation", "data.batch_size=11")
    assert "gpipe on 2, 3 stages; " in said.out
    assert alray("plan", spec, COUNTED, "--compare", "--svg", "x.svg", "--json").json["errors"][0]["key"] == "--svg"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ((), "batch normalisation"),
        (("data.last_batch=keep", "pipeline.micro_batch_norm=accept"), "mini-batches of one size"),
    ],
)
def test_a_comparison_refuses_what_a_run_does(
    alray: Callable[..., Any], spec: Path, asked: tuple[str, ...], why: str
) -> None:
    answer = alray("plan", spec, COUNTED, "method=backpropagation", *asked, "--compare", "--json").json
    assert {row["micro_batches"] for row in answer["rows"]} == {1}
    assert any(each.startswith("1f1b on 2 stages cannot run: ") and why in each for each in answer["refused"])


def test_a_pipeline_of_micro_batches(alray: Callable[..., Any], spec: Path) -> None:
    """Every stage's runs of components, and edges that have room for all micro-batches."""
    text = spec.read_text().replace("channels: [2]}\n", "channels: [2], repeat: 2}\n", 1)
    spec.write_text(re.sub("pipeline: .*", "pipeline: {}", text))
    arguments = ("method=backpropagation", "pipeline.stages=2", "pipeline.schedule=interleaved_1f1b")
    arguments = (*arguments, "pipeline.micro_batches=2", "pipeline.micro_batch_norm=accept")
    lines = alray("plan", spec, *arguments).out.splitlines()
    assert any(line.startswith("    0        0, 2  ") for line in lines)
    (edge,) = [line for line in lines if line.startswith("edge 0->1")]
    assert edge.endswith(" a mini-batch")


def test_notes_on_overrides_stand_beside_the_plan(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("plan", spec, "method=backpropagation", "--json")
    assert said.json["method"] == "backpropagation"
    assert "pipeline.stages of the file is set aside: backpropagation runs on one stage\n" in said.err


def test_machines_elsewhere_with_costs_that_were_measured_here(
    alray: Callable[..., Any], spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alray.runtime.probe.timing.PROBE_S", 0.0)
    measured = alray("probe", spec, "--output", "costs.json", "--json")
    assert measured.code == 0 and measured.json == json.loads(Path("costs.json").read_text(encoding="utf-8"))
    elsewhere = ("--on", "2x2xV100", "--link", "1Gbit/s, 1ms")
    planned = alray("plan", spec, *elsewhere, "--costs", "costs.json", "--json").json
    assert planned["machines"] == "2 nodes of 2 V100" and planned["cores"] is None
    assert "alray probe" in planned["basis"]["times"]
    low, high = planned["predicted_step_range_s"]
    assert low < planned["predicted_step_time_s"] < high
    said = alray("plan", spec, COUNTED, *elsewhere, "--compare").out
    assert "NVIDIA V100 datasheet" in said and "the card of a node of V100" in said
    searched = alray("plan", "--compare", spec, COUNTED, *elsewhere, "--json").json
    assert {row["stages"] for row in searched["rows"]} == {1, 2, 3} and searched["machines"] == "2 nodes of 2 V100"
    assert not any("machines" in each for row in searched["rows"] for each in row["overrides"])
    for option, wrong in {"--link": "25GBs", "--within": "fast"}.items():
        failed = alray("plan", spec, "--on", "8xA100", option, wrong)
        assert failed.code == 2 and f"machines.{option.removeprefix('--')}: " in failed.errors
    failed = alray("plan", spec, "--on", "8xA10O")
    assert failed.code == 2 and ": nothing is known of a device `A10O`" in failed.errors
    assert "--probe measures this machine" in alray("plan", spec, COUNTED, *elsewhere, "--probe").errors


def test_lists_for_the_stages_of_a_spec_are_for_no_search(alray: Callable[..., Any], spec: Path) -> None:
    lists = "resources: {per_stage: [{CPU: 1}, {CPU: 2}]}"
    spec.write_text(f"{spec.read_text(encoding='utf-8')}\n{lists}\n", encoding="utf-8")
    on = (spec, COUNTED, "pipeline.micro_batch_norm=accept", "--on", "3xA100", "--json")
    for search in ("--compare", "--map"):
        refused = alray("plan", search, *on)
        assert [each["key"] for each in refused.json["errors"]] == ["resources.per_stage"]
    alike = alray("plan", "--compare", *on, "resources.per_stage={CPU: 1}")
    assert max(each["stages"] for each in alike.json["rows"]) == 3


def test_the_devices_that_a_spec_describes_hold_on_other_nodes(alray: Callable[..., Any], spec: Path) -> None:
    device = "{memory: 9 GB, bandwidth: 9 GB/s, float32: 1 TFLOP/s}"
    mine = f"machines={{nodes: 2x2xmine, link: 1 GB/s, devices: {{mine: {device}}}}}"
    cut = (COUNTED, "pipeline.partition=uniform")
    planned = alray("plan", spec, *cut, mine, "machines.nodes=4xmine", "--json").json
    spec.write_text(f"{spec.read_text(encoding='utf-8')}\n{mine.replace('=', ': ')}\n", encoding="utf-8")
    other = alray("plan", spec, *cut, "--on", "4xmine", "--link", "1GB/s", "--json").json
    assert other["machines"] == "4 mine" and "at 65% of the peaks" in other["basis"]["times"]
    assert other["predicted_step_time_s"] == planned["predicted_step_time_s"] and other["too_large"] is None
    small = alray("plan", spec, *cut, "--on", "4xmine", "--link", "1GB/s", "resources.memory_bytes=9").out
    assert re.search("^too large .* needs [0-9,]+ bytes and its device has 9", small, re.MULTILINE)
    failed = alray("plan", spec, *cut, "--on", "4xmin")
    assert failed.code == 2 and ": nothing is known of a device `min`" in failed.errors


def test_the_links_of_a_spec_are_those_of_its_own_nodes(alray: Callable[..., Any], spec: Path) -> None:
    machines = "{nodes: '8xA100,8xA100', link: 1 Gbit/s, within: 1 MB/s, line: 1 MB/s}"
    spec.write_text(f"{spec.read_text(encoding='utf-8')}\nmachines: {machines}\n", encoding="utf-8")
    other = alray("plan", spec, COUNTED, "--on", "4xH100", "--json").json
    assert "450 GB/s" in other["basis"]["links"]
    said = alray("plan", spec, COUNTED, "--on", "4xH100", "machines.within=7 GB/s", "--json").json
    assert "7 GB/s" in said["basis"]["links"] and "450 GB/s" not in said["basis"]["links"]
    failed = alray("plan", spec, COUNTED, "--on", "2x4xH100")
    assert failed.code == 2 and "2 nodes are connected, and no link is given" in failed.errors
    groups = alray("plan", spec, COUNTED, "--on", "4xH100,4xA100", "--link", "9 GB/s", "--json").json
    assert "between groups" not in groups["basis"]["links"]
    failed = alray("plan", spec, COUNTED, "machines.nodes=2x8xA100")
    assert failed.code == 2 and "`line` is between the nodes of two groups, and these are one group" in failed.errors
