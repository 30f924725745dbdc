"""plan --map: which way to train is fastest where."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alray.core.errors import RequestError
from alray.runtime.planner.crossover import Asked

from .conftest import COUNTED

FEW = (
    "--devices",
    "1,2",
    "--micro-batches",
    "2",
    "--link",
    "host",
    "--memory",
    "1GB",
    "pipeline.micro_batch_norm=accept",
)


def test_the_page_the_ways_and_what_the_plan_predicts(
    alray: Callable[..., Any], spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(64)))  # so that stages share no processors
    answer = alray("plan", "--map", spec, COUNTED, *FEW, "--steps", "backpropagation=100", "--json")
    assert answer.code == 0
    assert {each["method"] for each in answer.json["factors"]} == {"associated_learning", "backpropagation"}
    assert [(each["link"], each["devices"]) for each in answer.json["fastest"]] == [("host", 1), ("host", 2)]
    page = Path(answer.json["page"]).read_text(encoding="utf-8")
    assert "The fastest way, over devices and links" in page and "assumed: as many as backpropagation" in page
    with Path("map_files/tables/ways.csv").open(encoding="utf-8") as rows:
        ways = list(csv.DictReader(rows))
    assert len(ways) == len(answer.json["ways"])
    (own,) = [
        each
        for each in ways
        if each["schedule"] == "streamed" and each["stages"] == "2" and not each["memory_limit_bytes"]
    ]
    plan = alray("plan", spec, COUNTED, "--json").json
    assert float(own["step_s"]) == pytest.approx(plan["predicted_step_time_s"])
    assert float(own["target_s"]) == pytest.approx(100 * float(own["step_s"]))


def test_without_backpropagation_the_steps_of_the_first_method_are_the_reference(
    alray: Callable[..., Any], spec: Path
) -> None:
    others = ("--methods", "decoupled_greedy", "--devices", "1", "--link", "host", "--memory", "1GB")
    given = ("--steps", "associated_learning=100", "--steps", "decoupled_greedy=150")
    said = alray("plan", "--map", spec, COUNTED, *others, *given, "--json")
    assert said.code == 0, said.errors
    assert {each["method"]: each["rho"] for each in said.json["factors"]} == {
        "associated_learning": 1.0,
        "decoupled_greedy": 1.5,
    }
    assert all(each["target_s"] for each in said.json["ways"])
    alone = alray("plan", "--map", spec, COUNTED, *others, "--steps", "decoupled_greedy=150")
    assert alone.code == 2 and "add --steps associated_learning=N" in alone.errors


@pytest.mark.full
def test_ways_that_were_measured_alike_have_no_range(
    alray: Callable[..., Any], spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alray.runtime.probe.timing.PROBE_S", 0.0)
    said = alray("plan", "--map", spec, COUNTED, *FEW, "--probe", "--json").json
    assert said["basis"]["times"].startswith("costs measured on this machine") and said["ways"]
    assert all(each["low_step_s"] is None for each in said["ways"])


@pytest.mark.few
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pipeline.stages=2"], "pipeline.stages: a crossover goes over this; leave it out"),
        (["replicas={count: 4}"], "replicas.count: a crossover goes over this; leave it out"),
        (["--devices", "0,2"], "--devices: `0,2` is not a list of whole numbers"),
        (["resources.per_stage=[{CPU: 1}, {CPU: 2}]"], "resources.per_stage: this is a list for one number of stages"),
        (["--link", "fast"], "--link: `fast` is not a link; write"),
        (["--steps", "bp"], "--steps: `bp` is not a method and its mini-batches"),
        (["--steps", "solo=10"], "--steps: steps are given for `solo`, which is not compared; compared are"),
        (["--steps", "python:mine.Own@8=9"], "--steps: steps are given for `python:mine.Own`, which is not compared"),
        (
            ["--steps", "associated_learning=9"],
            "--steps: steps count beside those of backpropagation, which are not known",
        ),
        (["--steps", "backpropagation/1f1b=9"], "add --steps backpropagation=N"),
        (
            ["--steps", "backpropagation@20=9"],
            "--steps: steps are given for mini-batches of 20, which are not compared",
        ),
        (["--batch-sizes", "20"], "--batch-sizes: ways with mini-batches of 10 cannot be compared"),
    ],
)
def test_wrong_requests(alray: Callable[..., Any], spec: Path, arguments: list[str], message: str) -> None:
    said = alray("plan", "--map", spec, COUNTED, *arguments)
    assert said.code == 2 and message in said.errors
    given = alray("plan", "--map", spec)
    assert given.code == 2 and "pipeline.costs: the spec gives the costs of one method" in given.errors


def test_each_list_has_a_bound_of_its_own() -> None:
    few = {"methods": "", "links": (), "memory": "", "steps": ()}
    asked = Asked.of(devices="4096", micro_batches="4", batch_sizes="8192", **few)
    assert (asked.devices, asked.batch_sizes) == ((4096,), (8192,))
    with pytest.raises(RequestError, match=r"--devices: `8192` is not a list of whole numbers from 1 to 4096"):
        Asked.of(devices="8192", micro_batches="4", batch_sizes="", **few)


def test_checkpointing_is_for_where_memory_is_too_small(alray: Callable[..., Any], spec: Path) -> None:
    """Whatever the file says."""
    text = spec.read_text(encoding="utf-8").replace("{kind: associated_learning, label_dim: 4}", "backpropagation")
    spec.write_text(text.replace("stages: 2, ", "stages: 2, activation_checkpointing: true, "), encoding="utf-8")
    found = alray("plan", "--map", spec, COUNTED, *FEW, "--json")
    assert found.code == 0, found.errors
    assert "pipeline.activation_checkpointing of the file is set aside" in found.errors
    given = alray("plan", "--map", spec, COUNTED, *FEW, "pipeline.activation_checkpointing=true")
    assert given.code == 2 and "pipeline.activation_checkpointing: a crossover goes over this" in given.errors


@pytest.mark.parametrize("link", ["fast", "host"])
def test_a_link_that_is_none_is_not_the_fault_of_each_way(alray: Callable[..., Any], spec: Path, link: str) -> None:
    said = alray("plan", "--map", spec, COUNTED, "machines.nodes=4xA100", "--link", "1 GB/s", "--link", link)
    assert said.code == 2 and "--link: " in said.errors and not Path("map.html").exists()


def test_all_devices_of_the_machines_count_and_no_others(alray: Callable[..., Any], spec: Path) -> None:
    on = ("machines={nodes: 3xA100}", "--micro-batches", "2", "pipeline.micro_batch_norm=accept")
    found = alray("plan", "--map", spec, COUNTED, *on, "--json").json
    assert [each["devices"] for each in found["fastest"]] == [1, 2, 3]
    said = alray("plan", "--map", spec, COUNTED, *on, "--devices", "2,8")
    assert said.code == 2 and "--devices: 8 devices are asked for, and 3 A100 are 3; ask for fewer" in said.errors


def test_memory_that_is_asked_for_is_that_of_the_device(alray: Callable[..., Any], spec: Path) -> None:
    """Of which libraries take as much as of the devices of the machines."""
    few = ("--on", "2xA100", "--micro-batches", "2", "pipeline.micro_batch_norm=accept", "--memory", "80GB,40GB")
    found = alray("plan", "--map", spec, COUNTED, *few, "--json")
    assert found.json["memory_bytes"] == [79 * 10**9, 39 * 10**9]


def test_the_memory_of_the_smallest_device_is_not_that_of_each(alray: Callable[..., Any], spec: Path) -> None:
    few = ("--on", "1xA100,1xT4", "--link", "9 GB/s", "--micro-batches", "2", "pipeline.micro_batch_norm=accept")
    found = alray("plan", "--map", spec, COUNTED, *few, "--memory", "16GB,80GB", "--json")
    assert found.json["memory_bytes"] == ["own", 79 * 10**9, 15 * 10**9]


@pytest.mark.parametrize("memory", ["4x24GB", "24GBs", "0GB"])
def test_memory_is_a_list_of_sizes(alray: Callable[..., Any], spec: Path, memory: str) -> None:
    said = alray("plan", "--map", spec, COUNTED, "--memory", memory)
    assert said.code == 2 and "--memory: `" in said.errors and "16GB,80GB" in said.errors


def test_where_no_way_can_run_the_reason_is_told(alray: Callable[..., Any], spec: Path) -> None:
    on = ("run.precision=bf16", "--on", "2xV100", "--micro-batches", "2", "--devices", "2")
    said = alray("plan", "--map", spec, COUNTED, *on)
    assert said.code == 2 and "V100 has no published speed in bf16" in said.errors
    assert not Path("map.html").exists()


def test_the_card_of_the_nodes_may_be_given_by_the_option_alone(alray: Callable[..., Any], spec: Path) -> None:
    spec.write_text(f"{spec.read_text(encoding='utf-8')}\nmachines: {{nodes: 2x1xA100}}\n", encoding="utf-8")
    few = ("--micro-batches", "2", "pipeline.micro_batch_norm=accept", "--link", "1 GB/s", "--link", "9 GB/s")
    found = alray("plan", "--map", spec, COUNTED, *few, "--json")
    assert found.code == 0, found.errors
    assert {each["link"] for each in found.json["fastest"]} == {"1 GB/s", "9 GB/s"}


def test_overrides_of_what_a_crossover_goes_over(alray: Callable[..., Any], spec: Path) -> None:
    """It opens the spec with other methods and mini-batches in their place."""
    given = ("method=decoupled_greedy", "method.group=1", "data.batch_size=4")
    found = alray("plan", "--map", spec, COUNTED, *given, *FEW, "--json")
    assert found.code == 0, found.errors
    assert {each["method"] for each in found.json["factors"]} == {"decoupled_greedy", "backpropagation"}
    assert {each["batch_size"] for each in found.json["ways"]} == {4}


def test_replicas_need_the_memory_of_their_plan(alray: Callable[..., Any], spec: Path) -> None:
    """The state of an outer optimizer too, which one replica alone does not have."""
    apart = (COUNTED, "replicas.synchronise={average_every: 4 steps, outer: {}}")
    ways = alray("plan", "--map", spec, *apart, *FEW, "--json").json["ways"]
    (found,) = {each["memory_bytes"] for each in ways if each["replicas"] == 2 and each["method"] != "backpropagation"}
    planned = alray("plan", spec, *apart, "pipeline.stages=1", "replicas.count=2", "--json").json
    assert found == planned["stage_plans"][0]["memory"]["total_bytes"]
