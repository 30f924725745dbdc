"""plan --compare on devices elsewhere: what fits on given devices, and how."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import alray as interface
from alray.planning.schedules.table import schedules_for
from alray.runtime.planner.fitting import parse_devices

from .conftest import COUNTED

BP = ("method=backpropagation", "pipeline.micro_batch_norm=accept")


def test_what_fits_first_by_predicted_step(alray: Callable[..., Any], spec: Path) -> None:
    answer = alray("plan", spec, COUNTED, "--devices", "3x1GB", "--json")
    assert answer.code == 0
    assert answer.json["fits"] and answer.json["devices"] == [10**9] * 3
    rows = answer.json["rows"]
    several = [schedule.name for schedule in schedules_for(local_losses=True)]
    ways = {(row["schedule"], row["stages"]) for row in rows}
    assert ways == {("streamed", 1)} | {(schedule, stages) for schedule in several for stages in (2, 3)}
    steps = [round(row["predicted_step_time_s"], 9) for row in rows]
    assert steps == sorted(steps)


def test_what_a_whole_section_gives_is_not_searched(alray: Callable[..., Any], spec: Path) -> None:
    rows = alray("plan", spec, "--devices", "3x1GB", "pipeline={stages: 2, costs: null}", "--json").json["rows"]
    assert {row["stages"] for row in rows} == {2} and len(rows) > 1
    cut = alray("plan", spec, "--devices", "3x1GB", "pipeline={stages: 2, partition: [1, 2], costs: null}")
    assert cut.code == 2 and "pipeline.partition: the best cut is searched" in cut.errors


def test_a_stage_gets_no_more_than_the_spec_gives_it(alray: Callable[..., Any], spec: Path) -> None:
    given = ("resources.memory_bytes=1000", "resources.per_stage={CPU: 1, memory: 1000}")
    for key in given:
        answer = alray("plan", spec, COUNTED, "--devices", "3x1GB", key, "--json")
        assert answer.code == 1 and not answer.json["fits"]


LINKS = "pipeline.links=[{bandwidth: 1 Mbit/s, latency: 20 ms}, {bandwidth: 10 Mbit/s, latency: 1 ms}]"


@pytest.mark.parametrize(
    ("given", "devices"),
    [
        ((), "2x1GB"),
        pytest.param((LINKS,), "3x1GB", marks=pytest.mark.full),
    ],
    ids=["plain", "links"],
)
def test_it_is_what_the_plan_predicts(
    alray: Callable[..., Any], spec: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], devices: str
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(64)))  # so that stages share no processors
    rows = alray("plan", spec, COUNTED, *BP, *given, "--devices", devices, "--json").json["rows"]
    assert {(row["schedule"], row["stages"]) for row in rows} >= {("1f1b", 2), ("gpipe", 2)}
    for row in rows:
        plan = alray("plan", spec, *row["overrides"], "--json").json
        assert (plan["partition"], plan["predicted_step_time_s"]) == (row["partition"], row["predicted_step_time_s"])
        assert [stage["memory"]["total_bytes"] for stage in plan["stage_plans"]] == row["memory_bytes"]


def test_what_the_spec_says_of_its_own_layout_is_no_fault_of_others(alray: Callable[..., Any], spec: Path) -> None:
    text = spec.read_text(encoding="utf-8").replace("{kind: associated_learning, label_dim: 4}", "backpropagation")
    text = text.replace("stages: 2, ", "stages: 2, schedule: 2bw, micro_batch_norm: accept, ")
    replicas = "replicas: {count: 2, sync_batch_norm: true}"
    spec.write_text(f"{text}\n{replicas}\n", encoding="utf-8")
    fitted = alray("plan", spec, "--devices", "4x1GB", "--json")
    assert fitted.code == 0 and {row["schedule"] for row in fitted.json["rows"]} >= {"single", "1f1b"}, fitted.errors
    crossed = alray("plan", "--map", spec, COUNTED, "--devices", "1,2", "--link", "host", "--json")
    assert crossed.code == 0, crossed.errors
    assert {(way["method"], way["replicas"]) for way in crossed.json["ways"]} >= {("backpropagation", 2)}


WIDE = """\
name: wide
data: {source: synthetic, shape: [1024], classes: 2, samples: 160, batch_size: 128}
model: {components: [{block: linear, width: 1024, repeat: 4}]}
method: backpropagation
run: {epochs: 1}
"""


@pytest.mark.full
def test_a_layout_on_machines_has_one_step_whoever_asks(alray: Callable[..., Any], spec: Path) -> None:
    """Its operations take longer than their launch in a mini-batch, and not in most micro-batches."""
    spec.write_text(WIDE, encoding="utf-8")
    on = ("--on", "2xT4", "--link", "25GB/s")
    found = [
        *alray("plan", spec, *on, "--compare", "--json").json["rows"],
        *alray("plan", "--map", spec, *on, "--devices", "2", "--json").json["ways"],
    ]
    rows = [each for each in found if each["schedule"] == "1f1b" and each["stages"] == 2]
    assert {each["micro_batches"] for each in rows} >= {4, 8, 16, 32} and len(rows) == 5
    for row in rows:
        cut = ",".join(re.findall(r"\d+", str(row["partition"])))
        numbers = [f"pipeline.{key}={row[key]}" for key in ("schedule", "stages", "micro_batches")]
        plan = alray("plan", spec, *numbers, f"pipeline.partition=[{cut}]", *on, "--json").json
        assert row.get("predicted_step_time_s", row.get("step_s")) == pytest.approx(plan["predicted_step_time_s"])


@pytest.mark.full
def test_the_overrides_of_a_row_run_it(alray: Callable[..., Any], spec: Path) -> None:
    """Whatever the file says of what was searched."""
    pipeline = (
        "pipeline: {schedule: interleaved_1f1b, stages: 1, partition: [1, 2], micro_batches: 5, virtual_stages: 2,"
    )
    spec.write_text(spec.read_text().replace("pipeline: {stages: 2,", pipeline))
    rows = alray("plan", spec, *BP, "data.batch_size=12", "--devices", "3x1GB", "--json").json["rows"]
    assert {(row["schedule"], row["stages"]) for row in rows} >= {("single", 1), ("naive", 2), ("1f1b", 3)}
    for row in rows:
        plan = alray("plan", spec, *row["overrides"], "--json").json
        for key in ("schedule", "stages", "partition", "micro_batches", "virtual_stages"):
            assert plan[key] == row[key], (key, row)
    assert "  alray run x.yaml method=backpropagation " in alray("plan", spec, *BP, "--devices", "1x1GB").out


@pytest.mark.full
def test_it_fits_without_data(alray: Callable[..., Any], spec: Path) -> None:
    missing = "data={source: torchvision, dataset: MNIST, root: nowhere, batch_size: 10}"
    assert "60,000 samples of shape [1, 28, 28]" in alray("plan", spec, COUNTED, missing, "--devices", "2x1GB").out
    assert alray("plan", spec, COUNTED, missing, "--devices", "2x1GB", "--json").json["assumed"]
    assert alray("plan", spec, COUNTED, "--devices", "2x1GB", "--json").json["assumed"] is None


def test_smaller_devices_need_more_stages_or_micro_batches(alray: Callable[..., Any], spec: Path) -> None:
    roomy = alray("plan", spec, COUNTED, *BP, "--devices", "2x1GB", "--json").json["rows"]
    needs = {row["schedule"]: max(row["memory_bytes"]) for row in roomy}
    limit = (needs["single"] - 1) / 1e6
    found = alray("plan", spec, COUNTED, *BP, "--devices", f"2x{limit:.6f}MB", "--json").json
    by_schedule = {row["schedule"]: row for row in found["rows"]}
    assert found["fits"] and any(row["fits"] and row["stages"] == 2 for row in found["rows"])
    assert not by_schedule["single"]["fits"] and by_schedule["single"]["left_bytes"][0] < 0
    alone = alray("plan", spec, COUNTED, *BP, "--devices", f"1x{limit:.6f}MB", "--json").json
    assert alone["fits"] and (alone["rows"][0]["schedule"], alone["rows"][0]["stages"]) == ("1f1b", 1)
    assert alray("plan", spec, *alone["rows"][0]["overrides"]).code == 0


@pytest.mark.full
def test_the_table_and_its_end(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("plan", spec, COUNTED, "--devices", "2x24GB")
    assert said.out.startswith("tiny: associated_learning, on 2 x 24.0 GB\ncosts estimated by counting")
    assert "\nfits  streamed" in said.out
    assert said.out.splitlines()[-1].startswith(f"run it with  alray run x.yaml {COUNTED} pipeline.schedule=")
    nothing = alray(
        "plan", spec, COUNTED, "--devices", "3x1MB", "data.batch_size=80", "model.components.1.channels=[99]"
    )
    assert (nothing.code, nothing.out.splitlines()[-1].partition(":")[0]) == (1, "nothing fits")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--on", "2x1e400GB"), "machines: `1e400GB` is too large to count with"),
        (("--on", "2xA100", "--link", "1e400GB/s"), "machines.link: `1e400GB/s` is too large"),
        (("--devices", "99999x1GB"), "--devices: these are 99,999 devices; name 4,096 at most"),
        (("machines={nodes: [{device: A100, count: 99999, devices: 99999}], link: 1 GB/s}",), "9,999,800,001 devices"),
        (("--devices", "2x999999999TB"), "--devices: `999999999TB` is too large"),
        (("pipeline.links=[{bandwidth: 1e-320 GB/s}]",), "pipeline.links[0].bandwidth: `1e-320 GB/s` is too small"),
        (
            ("machines={nodes: 2xX, devices: {X: {memory: 1e400 GB, bandwidth: 1 GB/s, float32: 1 TFLOP/s}}}",),
            "machines.devices.X.memory: `1e400 GB` is too large",
        ),
    ],
)
def test_sizes_beyond_counting_are_refused(
    alray: Callable[..., Any], spec: Path, arguments: tuple[str, ...], said: str
) -> None:
    answer = alray("plan", spec, COUNTED, "--compare", *arguments)
    assert answer.code == 2 and said in answer.errors


def test_what_is_given_is_not_searched(alray: Callable[..., Any], spec: Path) -> None:
    given = ("pipeline.stages=2", "pipeline.schedule=gpipe", "pipeline.micro_batches=5")
    (row,) = alray("plan", spec, COUNTED, *BP, *given, "--devices", "4x1GB", "--json").json["rows"]
    assert (row["schedule"], row["stages"], row["micro_batches"]) == ("gpipe", 2, 5)


def test_each_key_that_is_given_alone_is_not_searched(alray: Callable[..., Any], spec: Path) -> None:
    """Whatever it would be on the one stage on which the spec is opened."""
    Path("own").mkdir()
    Path("own/list.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", encoding="utf-8")
    for key, value, shown in (
        ("schedule", "own/list.csv", "list.csv"),
        ("micro_batches", "5", 5),
        ("virtual_stages", "1", 1),
    ):
        given = f"pipeline.{key}={value}"
        answer = alray("plan", spec, COUNTED, *BP, given, "--devices", "3x1GB", "--json")
        assert answer.code == 0, answer.errors
        assert {row[key] for row in answer.json["rows"] if row["stages"] == 2} == {shown}
        assert alray("plan", spec, *answer.json["rows"][0]["overrides"]).code == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("pipeline.micro_batches=four", "pipeline.micro_batches"),
        ("pipeline.virtual_stages=0", "pipeline.virtual_stages"),
        ("pipeline.schedule=list.csv", "`list.csv` is for 2 stages"),
    ],
)
def test_what_is_wrong_on_any_layout_is_an_error(alray: Callable[..., Any], spec: Path, given: str, told: str) -> None:
    Path("list.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", encoding="utf-8")
    answer = alray("plan", spec, COUNTED, *BP, given, "--devices", "1x1GB")
    assert answer.code == 2 and told in answer.errors


def test_a_pipeline_that_is_no_section_is_told(alray: Callable[..., Any], spec: Path) -> None:
    Path("list.csv").write_text("0F0,0B0\n1F0,1B0\n", encoding="utf-8")
    content = yaml.safe_load(spec.read_text(encoding="utf-8"))
    spec.write_text(yaml.safe_dump(content | {"pipeline": [1]}), encoding="utf-8")
    answer = alray("plan", spec, "pipeline.schedule=list.csv", "--devices", "2x1GB")
    assert answer.code == 2 and "pipeline" in answer.errors and "Traceback" not in answer.errors


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ((), {'resources.per_stage={"CPU": 1, "GPU": 1}'}),
        (
            ("resources.device=cpu", "resources.per_stage={CPU: 2, memory: 1e9}"),
            {"resources.device=auto", 'resources.per_stage={"CPU": 2, "memory": 1000000000, "GPU": 1}'},
        ),
        (("resources.per_stage={CPU: 1, GPU: 0.5}",), {'resources.per_stage={"CPU": 1, "GPU": 1}'}),
        (("resources.per_stage={CPU: 1, GPU: 2}",), {"resources.per_stage={CPU: 1, GPU: 2}"}),
    ],
)
def test_the_command_asks_for_the_accelerators_that_were_planned(
    alray: Callable[..., Any], spec: Path, given: tuple[str, ...], asked: set[str]
) -> None:
    found = alray("plan", spec, COUNTED, *given, "pipeline.stages=2", "--compare", "--on", "2xA100", "--json")
    assert found.code == 0, found.errors
    for row in found.json["rows"]:
        assert {text for text in row["overrides"] if text.startswith("resources.")} == asked
    planned = alray("plan", spec, COUNTED, *given, "--on", "2xA100", "--json")
    told = f"a whole accelerator for each stage: for a run add {shlex.join(sorted(asked))}"
    assert (told in planned.errors) == (set(given) != asked)


def test_the_command_runs_with_the_code_that_was_allowed(alray: Callable[..., Any], spec: Path) -> None:
    found = alray("plan", spec, "--devices", "1x1GB", "pipeline.stages=1", "--allow-code")
    assert found.code == 0 and "alray run x.yaml --allow-code " in found.out


def test_processors_elsewhere_have_the_memory_that_the_spec_gives(alray: Callable[..., Any], spec: Path) -> None:
    elsewhere = ("--compare", "--on", "2xcpu", "pipeline.stages=2", "--json")
    unknown = alray("plan", spec, *elsewhere)
    assert unknown.code == 0 and {tuple(row["left_bytes"]) for row in unknown.json["rows"]} == {()}
    found = alray("plan", spec, *elsewhere, "resources.memory_bytes=1000000000").json["rows"]
    assert all(
        left + need == 10**9 for row in found for left, need in zip(row["left_bytes"], row["memory_bytes"], strict=True)
    )


def test_what_is_given_as_auto_is_searched(alray: Callable[..., Any], spec: Path) -> None:
    given = ("pipeline.schedule=auto", "pipeline.micro_batches=auto", "pipeline.partition=auto", "pipeline.stages=2")
    found = alray("plan", spec, COUNTED, *BP, *given, "--devices", "2x1GB", "--json")
    usual = alray("plan", spec, COUNTED, *BP, given[-1], "--devices", "2x1GB", "--json")
    assert found.code == 0 and found.json["rows"] == usual.json["rows"]


def test_replicas_share_the_devices(alray: Callable[..., Any], spec: Path) -> None:
    rows = alray("plan", spec, COUNTED, "replicas.count=2", "--devices", "5x1GB", "--json").json["rows"]
    assert {row["stages"] for row in rows} == {1, 2}


def test_what_the_spec_refuses_is_told_once(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("plan", spec, COUNTED, "method=backpropagation", "--devices", "2x1GB")
    assert said.out.startswith(
        "tiny: backpropagation, on 2 x 1.00 GB, without 7 schedules\nleft out: 1f1b on 1, 2 stages; "
    )
    assert said.out.count("micro_batch_norm") == 1


ONE_PIXEL = """\
name: one
data: {source: synthetic, shape: [1, 1, 1], classes: 3, samples: 100, batch_size: 2}
model: {components: [{block: vgg, channels: [4], repeat: 2}]}
method: backpropagation
pipeline: {micro_batch_norm: accept}
run: {steps: 2}
"""
ONE_SAMPLE = "a part of a mini-batch has one sample, in which component 0 (block `vgg`) has one value of each channel"


def test_devices_that_no_stage_takes_refuse_no_layout(alray: Callable[..., Any], spec: Path) -> None:
    on = ("run.precision=bf16", "--on", "1xA100,1xV100", "--link", "25GB/s", "--json")
    fitted = alray("plan", "--compare", spec, COUNTED, *on)
    assert fitted.code == 0 and {row["stages"] for row in fitted.json["rows"]} == {1}, fitted.errors
    both = alray("plan", "--compare", spec, COUNTED, *on, "pipeline.stages=2")
    assert both.code == 2 and [each["key"] for each in both.json["errors"]] == ["run.precision"]


def test_micro_batches_with_too_few_samples_are_not_offered(alray: Callable[..., Any], spec: Path) -> None:
    spec.write_text(ONE_PIXEL, encoding="utf-8")
    fitted = alray("plan", spec, "--devices", "2x1GB", "--json").json
    assert {row["schedule"] for row in fitted["rows"]} == {"single", "naive"}
    assert any(each.startswith(f"1f1b on 2 stages cannot run: {ONE_SAMPLE}") for each in fitted["refused"])
    measured = alray("plan", spec, "--devices", "2x1GB", "--probe", "data.batch_size=4", "--json")
    assert measured.code == 0, measured.errors  # that of four samples is measured in halves
    assert {row["micro_batches"] for row in measured.json["rows"]} == {1, 2}


ONE_IS_TOO_FEW = """\
import torch
class Few(torch.nn.Module):
    def __init__(self, input):
        super().__init__()
        self.inner = torch.nn.Linear(*input, *input)
    def forward(self, s):
        if len(s) < 2:
            raise ValueError("too few")
        return self.inner(s)
"""


def test_a_block_that_does_not_take_so_few_samples_runs_in_other_layouts(alray: Callable[..., Any], spec: Path) -> None:
    Path("few.py").write_text(ONE_IS_TOO_FEW, encoding="utf-8")
    text = ONE_PIXEL.replace("block: vgg, channels: [4]", "block: 'python:few.Few'").replace("[1, 1, 1]", "[4]")
    spec.write_text(text.replace("batch_size: 2", "batch_size: 4"), encoding="utf-8")
    machines = ("--on", "2xA100")
    fitted = alray("plan", "--compare", spec, *machines, "--json").json
    assert {(row["schedule"], row["micro_batches"]) for row in fitted["rows"]} >= {("single", 1), ("1f1b", 2)}
    assert any(
        each.startswith("1f1b on 2 stages cannot run in 4 or more micro-batches: ") for each in fitted["refused"]
    )
    crossed = interface.map_ways(spec, on="2xA100", methods="associated_learning", micro_batches=[2, 4], progress=False)
    ways = {(way["schedule"], way["micro_batches"]) for way in crossed.values["ways"]}
    assert ("gpipe", 2) in ways and ("gpipe", 4) not in ways
    assert alray("plan", spec, "--compare", *machines).code == 0
    planned = alray("plan", spec, *machines, "pipeline={stages: 2, micro_batches: 4, micro_batch_norm: accept}")
    assert "too few" in planned.errors and "it was tried with 1 sample without values" in planned.errors
    measured = alray("plan", spec, "--devices", "2x1GB", "--probe")
    assert "it was tried on a micro-batch of 1 sample; correct its code" in measured.errors


@pytest.mark.parametrize(
    ("text", "sizes"),
    [("4x24GB", [24 * 10**9] * 4), ("2x1.5GiB", [3 * 2**29] * 2), ("1x80 GB", [80 * 10**9])],
)
def test_devices(text: str, sizes: list[int]) -> None:
    assert list(parse_devices(text)) == sizes


@pytest.mark.few
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "4x24"], "--devices: `4x24` is not a number of devices and their memory; write, for example"),
        (["--devices", "4x24GB", "machines.nodes=2xA100"], "--devices: --on, or the spec, names machines too"),
        (["--devices", "0x24GB"], "--devices: `0x24GB` is not"),
        (["--devices", "2x80GB,24GB"], "--devices: `2x80GB,24GB` is not"),
        (
            ["--devices", "1x1GB", "pipeline.stages=2"],
            "--devices: 2 stages need as many devices, and there are 1; name more",
        ),
        (["--devices", "1x1GB", "replicas.count=2"], "--devices: 2 stages need as many devices, and there are 1"),
        (
            ["--devices", "1x1GB", "resources.per_stage=[{CPU: 1}, {CPU: 2}]"],
            "resources.per_stage: this is a list for one number of stages, and several are searched; add one value",
        ),
        (
            ["--devices", "1x1GB", "pipeline.partition=[3]"],
            "pipeline.partition: the best cut is searched; leave it out",
        ),
    ],
)
def test_wrong_requests(alray: Callable[..., Any], spec: Path, arguments: list[str], message: str) -> None:
    said = alray("plan", spec, COUNTED, *arguments)
    assert said.code == 2 and message in said.errors


def test_from_python(spec: Path) -> None:
    found = interface.ways(spec, {"pipeline.costs": None}, devices="2x1GB", progress=False)
    assert found.best is not None and found.best == found.rows[0]
    plan = interface.plan(spec, found.overrides(found.best), progress=False)
    assert (plan.stages, plan.partition) == (found.best.stages, found.best.partition)
