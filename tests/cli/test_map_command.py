"""`plan --map` and `alray.map_ways`: which way to train is fastest where."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import alray as interface
from alray.core.errors import AlrayError, RequestError

from .conftest import COUNTED

NORM = "pipeline.micro_batch_norm=accept"
FEW: dict[str, Any] = {"devices": "1,2", "micro_batches": [2], "link": "host"}


def mapped(spec: Path, *overrides: str, **asked: Any) -> dict[str, Any]:
    """What `alray.map_ways` finds, with costs that are counted."""
    return interface.map_ways(spec, [COUNTED, NORM, *overrides], progress=False, **asked).values


def test_the_page_the_ways_and_what_the_plan_predicts(
    alray: Callable[..., Any], spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(64)))  # so that stages share no processors
    answer = alray("plan", "--map", spec, COUNTED, NORM, "--devices", "1,2", "--link", "host", "--json")
    assert answer.code == 0
    assert {each["method"] for each in answer.json["factors"]} == {"associated_learning", "backpropagation"}
    assert [(each["link"], each["devices"]) for each in answer.json["fastest"]] == [("host", 1), ("host", 2)]
    page = Path(answer.json["page"]).read_text(encoding="utf-8")
    assert "The fastest way, over devices and links" in page
    with Path("map_files/tables/ways.csv").open(encoding="utf-8") as rows:
        ways = list(csv.DictReader(rows))
    assert len(ways) == len(answer.json["ways"])
    (own,) = [each for each in ways if each["schedule"] == "streamed" and each["stages"] == "2"]
    plan = alray("plan", spec, COUNTED, "--json").json
    assert float(own["step_s"]) == pytest.approx(plan["predicted_step_time_s"])
    found = interface.map_ways(spec, [COUNTED, NORM], **FEW, steps={"backpropagation": 100}, progress=False)
    assert "assumed: as many as backpropagation" in found.page
    assert {each["target_s"] == pytest.approx(100 * each["step_s"]) for each in found.values["ways"]} == {True}


def test_without_backpropagation_the_steps_of_the_first_method_are_the_reference(spec: Path) -> None:
    others = {"methods": "decoupled_greedy", "devices": "1", "link": "host"}
    found = mapped(spec, **others, steps={"associated_learning": 100, "decoupled_greedy": 150})
    assert {each["method"]: each["rho"] for each in found["factors"]} == {
        "associated_learning": 1.0,
        "decoupled_greedy": 1.5,
    }
    assert all(each["target_s"] for each in found["ways"])
    with pytest.raises(RequestError, match="those of associated_learning too"):
        mapped(spec, **others, steps={"decoupled_greedy": 150})


@pytest.mark.full
def test_ways_that_were_measured_alike_have_no_range(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alray.runtime.probe.timing.PROBE_S", 0.0)
    found = mapped(spec, **FEW, probe=True)
    assert found["basis"]["times"].startswith("costs measured on this machine") and found["ways"]
    assert all(each["low_step_s"] is None for each in found["ways"])


@pytest.mark.few
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pipeline.stages=2"], "pipeline.stages: a crossover goes over this; leave it out"),
        (["replicas={count: 4}"], "replicas.count: a crossover goes over this; leave it out"),
        (["--devices", "0,2"], "--devices: `0,2` is not a list of whole numbers"),
        (["resources.per_stage=[{CPU: 1}, {CPU: 2}]"], "resources.per_stage: this is a list for one number of stages"),
        (["--link", "fast"], "--link: `fast` is not a link; write"),
        (["--costs", "costs.json"], "--costs: a map does not take this option"),
    ],
)
def test_wrong_requests(alray: Callable[..., Any], spec: Path, arguments: list[str], message: str) -> None:
    said = alray("plan", "--map", spec, COUNTED, *arguments)
    assert said.code == 2 and message in said.errors
    given = alray("plan", "--map", spec)
    assert given.code == 2 and "pipeline.costs: the spec gives the costs of one method" in given.errors


@pytest.mark.few
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"steps": {"solo": 10}}, "steps: steps are given for `solo`, which is not compared; compared are"),
        ({"steps": {"backpropagation/2b": 10}}, "steps: steps are given for `backpropagation/2b`, which is not"),
        ({"steps": {"associated_learning": 9}}, "steps count beside those of backpropagation, which are not known"),
        ({"steps": {"backpropagation/1f1b": 9}}, "give those of backpropagation too"),
        ({"micro_batches": [0]}, "micro_batches: `0` is not a list of whole numbers from 1 to 4096"),
        ({"devices": [8192]}, "devices: `8192` is not a list of whole numbers from 1 to 4096"),
    ],
)
def test_wrong_arguments(spec: Path, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(AlrayError) as caught:
        mapped(spec, **asked)
    assert message in str(caught.value)


def test_checkpointing_is_for_where_memory_is_too_small(alray: Callable[..., Any], spec: Path) -> None:
    """Whatever the file says."""
    text = spec.read_text(encoding="utf-8").replace("{kind: associated_learning, label_dim: 4}", "backpropagation")
    spec.write_text(text.replace("stages: 2, ", "stages: 2, activation_checkpointing: true, "), encoding="utf-8")
    few = (NORM, "--devices", "1,2", "--link", "host")
    found = alray("plan", "--map", spec, COUNTED, *few, "--json")
    assert found.code == 0, found.errors
    assert "pipeline.activation_checkpointing of the file is set aside" in found.errors
    given = alray("plan", "--map", spec, COUNTED, *few, "pipeline.activation_checkpointing=true")
    assert given.code == 2 and "pipeline.activation_checkpointing: a crossover goes over this" in given.errors


@pytest.mark.parametrize("link", ["fast", "host"])
def test_a_link_that_is_none_is_not_the_fault_of_each_way(alray: Callable[..., Any], spec: Path, link: str) -> None:
    said = alray("plan", "--map", spec, COUNTED, "machines.nodes=4xA100", "--link", "1 GB/s", "--link", link)
    assert said.code == 2 and "--link: " in said.errors and not Path("map.html").exists()


def test_all_devices_of_the_machines_count_and_no_others(alray: Callable[..., Any], spec: Path) -> None:
    on = ("machines={nodes: 3xA100}", NORM)
    found = alray("plan", "--map", spec, COUNTED, *on, "--json").json
    assert [each["devices"] for each in found["fastest"]] == [1, 2, 3]
    said = alray("plan", "--map", spec, COUNTED, *on, "--devices", "2,8")
    assert said.code == 2 and "--devices: 8 devices are asked for, and 3 A100 are 3; ask for fewer" in said.errors


def test_what_does_not_fit_is_a_way_and_nowhere_the_fastest(spec: Path) -> None:
    found = mapped(spec, "resources.memory_bytes=22000", **FEW)
    assert {each["fits"] for each in found["ways"]} == {"yes", "no"}
    fitting = {(each["method"], each["schedule"], each["stages"]) for each in found["ways"] if each["fits"] == "yes"}
    assert {
        (each["method"], each["schedule"], each["stages"]) for each in found["fastest"] if each["method"]
    } <= fitting


def test_where_no_way_can_run_the_reason_is_told(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("plan", "--map", spec, COUNTED, "run.precision=bf16", "--on", "2xV100", "--devices", "2")
    assert said.code == 2 and "V100 has no published speed in bf16" in said.errors
    assert not Path("map.html").exists()


def test_the_card_of_the_nodes_may_be_given_by_the_option_alone(alray: Callable[..., Any], spec: Path) -> None:
    spec.write_text(f"{spec.read_text(encoding='utf-8')}\nmachines: {{nodes: 2x1xA100}}\n", encoding="utf-8")
    found = alray("plan", "--map", spec, COUNTED, NORM, "--link", "1 GB/s", "--link", "9 GB/s", "--json")
    assert found.code == 0, found.errors
    assert {each["link"] for each in found.json["fastest"]} == {"1 GB/s", "9 GB/s"}


def test_overrides_of_what_a_crossover_goes_over(spec: Path) -> None:
    """It opens the spec with other methods and mini-batches in their place."""
    found = mapped(spec, "method=decoupled_greedy", "method.group=1", "data.batch_size=4", **FEW)
    assert {each["method"] for each in found["factors"]} == {"decoupled_greedy", "backpropagation"}
    assert found["batch_size"] == 4


def test_replicas_need_the_memory_of_their_plan(alray: Callable[..., Any], spec: Path) -> None:
    """The state of an outer optimizer too, which one replica alone does not have."""
    apart = "replicas.synchronise={average_every: 4 steps, outer: {}}"
    ways = mapped(spec, apart, **FEW)["ways"]
    (found,) = {each["memory_bytes"] for each in ways if each["replicas"] == 2 and each["method"] != "backpropagation"}
    planned = alray("plan", spec, COUNTED, apart, "pipeline.stages=1", "replicas.count=2", "--json").json
    assert found == planned["stage_plans"][0]["memory"]["total_bytes"]
