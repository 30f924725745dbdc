"""Plans for devices that an engine found, and after a failure. The engine is one that says what the test gives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from alray.core.errors import NodesLost, PlanError
from alray.planning.prediction.costs import Costs, Link
from alray.planning.prediction.plan import Plan
from alray.planning.prediction.stage_devices import StageDevices
from alray.runtime.device import devices
from alray.runtime.planner.planning import Planner
from alray.runtime.planner.stage_devices import Layout, stage_links
from alray.runtime.planner.updates import notes_on_length

COST = "{forward_s: 1.0e-3, backward_s: 2.0e-3, update_s: 1.0e-3}"
SIX = f"""\
name: six
data: {{source: synthetic, shape: [4], classes: 2, samples: 64, batch_size: 8}}
model: {{components: [{{block: linear, width: 3, repeat: 6}}]}}
optimizer: {{kind: sgd, lr: 0.1}}
pipeline: {{stages: 3, costs: [{", ".join([COST] * 6)}]}}
run: {{epochs: 1}}
"""
SLOW = Link(latency_s=0.01, up_s_per_byte=1e-6, down_s_per_byte=1e-6, buffer_bytes=1e6)
LARGE = StageDevices(memory_bytes=(24 * 10**9,) * 3)


@dataclass
class Engine:
    """It has these devices, and room for so many stages and replicas."""

    devices: StageDevices | None = None
    stages: int = 3
    replicas: int = 1

    def measures_devices(self) -> bool:
        return self.devices is not None

    def find_devices(self, *asked: Any) -> StageDevices | None:
        return self.devices

    def room(self, layouts: Sequence[Layout]) -> Layout | None:
        return next((each for each in layouts if each[0] <= self.stages and each[1] <= self.replicas), None)


@pytest.fixture
def planned(make_planner: Callable[..., Planner]) -> Callable[..., tuple[Planner, Costs, Plan]]:
    def make(*overrides: str) -> tuple[Planner, Costs, Plan]:
        planner = make_planner(*overrides, text=SIX)
        costs = planner.costs(probe=False)
        return planner, costs, planner.plan(costs)

    return make


def test_devices_like_this_machines_change_no_plan(planned: Callable[..., Any]) -> None:
    planner, costs, plan = planned()
    assert list(plan.partition) == [2, 2, 2]
    assert planner.fitted(plan, costs, Engine(), print) is plan


def test_a_slow_device_gets_fewer_components(planned: Callable[..., Any]) -> None:
    planner, costs, plan = planned()
    notes: list[str] = []
    found = StageDevices(stage_speed=(1.0, 0.4, 1.0), nodes=("a", "b", "b"), links=(SLOW, None, None))
    fitted = planner.fitted(plan, costs, Engine(found), notes.append)
    assert list(fitted.partition) == [2, 1, 3] or list(fitted.partition) == [3, 1, 2]
    assert fitted.nodes == ("a", "b", "b")
    assert [note.partition(":")[0] for note in notes] == [
        "relative to this machine, the devices of the stages have speeds of 1.00, 0.40, 1.00",
        "the stages are on a, b, b",
        "between stage 0 and stage 1",
    ]


@pytest.mark.parametrize("first", ["{CPU: 1, GPU: 1}", "{CPU: 1}"], ids=["gpu", "processor"])
def test_a_small_gpu_gets_fewer_components(
    planned: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Equally fast: it was measured where the stage is, and so was its memory. That of a processor never is."""
    planner, costs, plan = planned(f"resources.per_stage=[{first}, {{CPU: 1, GPU: 1}}, {{CPU: 1, GPU: 1}}]")
    monkeypatch.setattr("alray.runtime.planner.memory_limits._BESIDES_TENSORS_BYTES", 0)
    assert list(plan.partition) == [2, 2, 2]
    large, small = 10**9, plan.stage_plans[1].memory.total_bytes - 1
    of_first = large if "GPU" in first else None
    fitted = planner.fitted(plan, costs, Engine(StageDevices(memory_bytes=(of_first, small, large))), print)
    assert fitted.partition[1] == 1


def test_a_small_gpu_of_the_command_refuses_nothing_that_fits_the_cluster(
    planned: Callable[..., Any], make_planner: Callable[..., Planner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stages' GPUs are measured once there is a plan to place. What the spec says holds before, too."""
    on_gpu = "resources.per_stage={CPU: 1, GPU: 1}"
    _, costs, plan = planned(on_gpu)
    monkeypatch.setattr(devices, "at_hand", lambda device: torch.device("cuda", 0))
    monkeypatch.setattr("alray.core.accelerator.least_memory_bytes", lambda: 10)
    planner = make_planner(on_gpu, text=SIX)
    with pytest.raises(PlanError, match="no cut of 6 components into 3 stages fits"):
        planner.plan(costs, engine=Engine())
    first = planner.plan(costs, engine=Engine(LARGE))
    assert planner.fitted(first, costs, Engine(LARGE), print).partition == plan.partition
    of_two = Engine(StageDevices(memory_bytes=LARGE.memory_bytes[:2]), stages=2)
    assert planner.replanned(first, costs, of_two, print).stages == 2
    for given in ("resources={memory_bytes: 10, per_stage: {GPU: 1}}", "resources.per_stage={GPU: 1, memory: 10}"):
        with pytest.raises(PlanError, match="no cut of 6 components into 3 stages fits"):
            make_planner(given, text=SIX).plan(costs, engine=Engine(LARGE))


def test_a_given_cut_stays_where_it_is(planned: Callable[..., Any]) -> None:
    planner, costs, plan = planned("pipeline.partition=[4,1,1]")
    found = StageDevices(stage_speed=(1.0, 0.4, 1.0))
    assert list(planner.fitted(plan, costs, Engine(found), print).partition) == [4, 1, 1]


def test_after_a_failure_with_all_nodes_the_plan_stays(planned: Callable[..., Any]) -> None:
    planner, costs, plan = planned()
    notes: list[str] = []
    assert planner.replanned(plan, costs, Engine(), notes.append) is plan
    assert notes == []


def test_fewer_stages_get_another_cut_even_where_one_was_given(planned: Callable[..., Any]) -> None:
    planner, costs, plan = planned("pipeline.partition=[4,1,1]")
    notes: list[str] = []
    fewer = planner.replanned(plan, costs, Engine(stages=2), notes.append)
    assert (fewer.stages, list(fewer.partition)) == (2, [3, 3])
    assert notes == ["there is room for 2 of 3 stages: partition [3, 3] from here on"]


@pytest.mark.parametrize("synchronise", ["every_step", "{average_every: 2 steps}"])
def test_fewer_replicas_share_the_mini_batch(planned: Callable[..., Any], synchronise: str) -> None:
    planner, costs, plan = planned("pipeline.stages=1", "replicas.count=3", f"replicas.synchronise={synchronise}")
    notes: list[str] = []
    fewer = planner.replanned(plan, costs, Engine(replicas=2), notes.append)
    assert (fewer.replicas, list(fewer.shares)) == (2, [4, 4])
    said, *mean = notes
    assert said == "there is room for 2 of 3 replicas: they take [4, 4] samples of each mini-batch from here on"
    assert len(mean) == (synchronise != "every_step")


def test_larger_shares_take_longer_and_more_memory(planned: Callable[..., Any]) -> None:
    """The costs were measured with those of all replicas."""
    planner, costs, plan = planned("pipeline.stages=1", "replicas.count=4")
    fewer = planner.replanned(plan, costs, Engine(replicas=1), print)
    _, _, of_one = planned("pipeline.stages=1", "replicas.count=1")
    assert fewer.stage_plans[0].memory == of_one.stage_plans[0].memory
    assert fewer.predicted_step_time_s == pytest.approx(of_one.predicted_step_time_s)
    computed = sum(4 * (each.forward_s + each.backward_s) for each in costs.components)
    assert fewer.predicted_step_time_s > computed


@pytest.mark.parametrize(
    ("keys", "averaged", "kept"),
    [
        ("{}", 1, 0),
        ("{compression: top_k}", 1, 1),
        ("{compression: {kind: powersgd, start_iteration: 2}, engine: ray_train}", 0, 1),
        ("{synchronise: {average_every: 4 steps}}", 1, 0),
        ("{synchronise: {average_every: 4 steps, outer: {}, delay: 1}}", 1, 3),
    ],
)
def test_replicas_hold_the_copy_in_which_they_average(
    planned: Callable[..., Any], keys: str, averaged: int, kept: int
) -> None:
    """Besides the gradients a stage has the flat tensor that is summed, and what a compression has left out."""
    layout = ("method=backpropagation", "pipeline.stages=1")
    _, costs, alone = planned(*layout)
    _, _, several = planned(*layout, f"replicas={keys}", "replicas.count=2")
    one, other = (plan.stage_plans[0].memory for plan in (alone, several))
    gradients = sum(each.gradient_bytes for each in costs.components)
    assert other.gradients_bytes - one.gradients_bytes == averaged * gradients
    assert other.optimizer_bytes - one.optimizer_bytes == kept * gradients


def test_a_slow_network_decides_how_long_an_average_takes(planned: Callable[..., Any]) -> None:
    """1 ms a message and 1 MB/s; three replicas, 16-bit gradients, one average every two mini-batches."""
    three = "replicas={count: 3, all_reduce: star, compression: fp16}"
    planner, costs, _ = planned("pipeline.stages=2", three, "optimizer.accumulate=2")
    slow = planner.averaged(costs, 3, Link(1e-3, 1e-7, 1e-6))
    assert [each.reduce_s for each in slow.components] == pytest.approx(
        [2 * (1e-3 + 0.5e-6 * each.gradient_bytes) for each in costs.components]
    )
    fast = planner.averaged(slow, 3, Link(1e-6, 1e-9, 1e-9))
    assert fast == slow, "the processes themselves take longer than this network"


def test_without_a_node_there_is_no_plan(planned: Callable[..., Any]) -> None:
    planner, costs, plan = planned()
    with pytest.raises(NodesLost, match="no node is left that can hold a stage"):
        planner.replanned(plan, costs, Engine(stages=0), print)


BACKPROPAGATION = "method={kind: backpropagation}"
LISTED = """\
0F0,0F1,0F2,0B0,0B1,0B2
1F0,1B0,1F1,1B1,1F2,1B2
"""


@pytest.mark.parametrize(
    ("samples", "micro_batches", "replicas"),
    [(32, 4, 2), (24, 6, 2), (24, 2, 3)],  # three replicas: 11, 11 and 10 samples; 8 of each, in 6 parts; 8, in 2
)
def test_replicas_of_a_pipeline_keep_shares_that_micro_batches_divide(
    planned: Callable[..., Any], samples: int, micro_batches: int, replicas: int
) -> None:
    pipeline = f"pipeline={{stages: 2, schedule: 1f1b, micro_batches: {micro_batches}}}"
    planner, costs, plan = planned(BACKPROPAGATION, pipeline, "replicas.count=4", f"data.batch_size={samples}")
    notes: list[str] = []
    fewer = planner.replanned(plan, costs, Engine(replicas=3), notes.append)
    assert fewer.shares == (samples // replicas,) * replicas
    assert notes[0].startswith(f"there is room for {replicas} of 4 replicas")


@pytest.mark.parametrize(
    ("schedule", "stages", "micro_batches", "room", "goes_on_with"),
    [
        ("interleaved_1f1b", 4, 10, 3, 2),  # 3 rounds of 3 stages do not share 10 micro-batches
        ("zero_bubble", 4, 5, 2, 1),
        ("zero_bubble", 4, 5, 3, 3),
    ],
)
def test_a_number_of_stages_that_the_schedule_cannot_have_is_passed_over(
    planned: Callable[..., Any], schedule: str, stages: int, micro_batches: int, room: int, goes_on_with: int
) -> None:
    planner, costs, plan = planned(
        BACKPROPAGATION,
        f"pipeline={{stages: {stages}, schedule: {schedule}, micro_batches: {micro_batches}}}",
        "model.components=[{block: linear, width: 3, repeat: 8}]",
        "data.batch_size=40",
    )
    assert planner.replanned(plan, costs, Engine(stages=room), print).stages == goes_on_with


def test_a_listed_schedule_waits_for_its_nodes(planned: Callable[..., Any], tmp_path: Path) -> None:
    """It is for one number of stages. What is wrong is the cluster, and no key of the spec."""
    (tmp_path / "mine.csv").write_text(LISTED, encoding="utf-8")
    planner, costs, plan = planned(BACKPROPAGATION, f"pipeline={{schedule: {tmp_path}/mine.csv}}", "data.batch_size=6")
    with pytest.raises(NodesLost, match=r"stages and replicas that `mine\.csv` can run with") as raised:
        planner.replanned(plan, costs, Engine(stages=1), print)
    assert "bring nodes back" in str(raised.value.problems[0].hint)


def test_links_of_the_spec_hold_on_one_machine_alone(load_small: Callable[..., Any]) -> None:
    spec = load_small("pipeline={stages: 2, links: [{bandwidth: 8 Mbit/s, latency: 5 ms}]}").spec
    for link in stage_links(spec, 2, StageDevices()):  # up, and from the last stage to the first
        assert link is not None and (link.latency_s, link.up_s_per_byte) == (0.005, 1e-6)
    with pytest.raises(PlanError, match="messages between several nodes are not delayed"):
        stage_links(spec, 2, StageDevices(nodes=("a", "b"), links=(SLOW, SLOW)))
    assert stage_links(load_small("pipeline.stages=2").spec, 2, StageDevices(links=(SLOW, SLOW))) == (SLOW, SLOW)


BILINEAR = """
from torch import nn


class Bilinear(nn.Module):
    def __init__(self, input):
        super().__init__()
        self.kept = nn.Bilinear(3, 3, 3)

    def forward(self, s, mask=None):
        return self.kept(s, s)
"""


@pytest.mark.parametrize(
    ("schedule", "bilinear", "named"),
    [("zero_bubble", (2,), "component 2"), ("zero_bubble", (0, 2, 4), "components 2 and 4"), ("1f1b", (2,), None)],
)
def test_a_note_names_components_that_cannot_be_split(
    make_planner: Callable[..., Planner], schedule: str, bilinear: tuple[int, ...], named: str | None
) -> None:
    text = SIX.replace("shape: [4]", "shape: [3]").replace("batch_size: 8}", "batch_size: 9}")
    chosen = [f"model.components.{index}={{block: 'python:own_blocks.Bilinear'}}" for index in bilinear]
    listed = "model.components=[" + ", ".join(["{block: linear, width: 3}"] * 6) + "]"
    method = ("method={kind: backpropagation}", f"pipeline.schedule={schedule}", "pipeline.micro_batches=3")
    planner = make_planner(listed, *chosen, *method, text=text, code=BILINEAR)
    notes: list[str] = []
    planner.plan(planner.costs(probe=False), note=notes.append)
    found = [note for note in notes if "splits backward passes" in note]
    assert found == (
        []
        if named is None
        else [
            f"`zero_bubble` splits backward passes, but nothing of those of {named}: only linear and convolutional "
            "layers that are modules of torch can be split"
        ]
    )


@pytest.mark.parametrize("second", ["{CPU: 1}", "{CPU: 1, GPU: 1}"])
def test_a_plan_says_that_it_does_not_know_the_speed_of_a_gpu_beside_a_cpu(
    make_planner: Callable[..., Planner], second: str
) -> None:
    layout = ("pipeline.stages=2", f"resources.per_stage=[{{CPU: 1}}, {second}]")
    planner = make_planner(*layout, text=SIX)
    costs = planner.costs(probe=False)
    of_plan: list[str] = []
    of_run: list[str] = []
    planner.plan(costs, note=of_plan.append)
    planner.plan(costs, engine=Engine(), note=of_run.append)
    said = "stages on processors and on GPUs count as equally fast"
    assert any(said in note for note in of_plan) == ("GPU" in second)
    assert not any(said in note for note in of_run)


APART = "replicas={count: 2, synchronise: {average_every: %s steps}}"
DISTURBED = "replicas={count: 2, disturbance: {factor: 2, workers: [1], epochs: [%s, 9]}}"
POWER = "replicas={count: 2, compression: {kind: powersgd, start_iteration: %s}}"


@pytest.mark.parametrize(
    ("key", "override", "late", "early"),
    [
        ("lr_schedule.warmup_epochs", "lr_schedule={kind: cosine, warmup_epochs: %s}", "2.25", "2"),
        ("lr_schedule.at", "lr_schedule={kind: multi_step, at: [1 epochs, %s]}", "14 steps", "13 steps"),
        ("lr_schedule.at", "lr_schedule={kind: multi_step, at: [%s]}", "112 samples", "104 samples"),
        ("run.evaluate_every", "run={epochs: 2, evaluate_every: %s}", "3 epochs", "2 epochs"),
        ("run.checkpoint.every", "run={epochs: 2, checkpoint: {every: %s}}", "17 steps", "9 s"),
        ("run.stop_at", "run={epochs: 2, stop_at: {above: 0.9}, evaluate_every: %s}", "2 epochs", "13 steps"),
        ("run.stop_at.patience", "run={epochs: 2, stop_at: {patience: %s}, evaluate_every: 5 steps}", 2, 1),
        ("replicas.synchronise.average_every", APART, 15, 14),
        ("replicas.disturbance.epochs", DISTURBED, 3, 2),
        ("replicas.compression.start_iteration", POWER, 14, 13),
    ],
)
def test_what_would_begin_after_the_run_is_told(make_planner, key: str, override: str, late: Any, early: Any) -> None:
    """The run has two epochs of 7 mini-batches."""
    length = () if override.startswith("run=") else ("run.epochs=2",)
    planner = make_planner(*length, override % late, text=SIX)
    assert [line for line in notes_on_length(planner.workload) if line.endswith(f"({key})")] != []
    planner = make_planner(*length, override % early, text=SIX)
    assert list(notes_on_length(planner.workload)) == []


def test_what_is_of_scaled_rates_alone_is_told(make_planner) -> None:
    rates = "lr_schedule={kind: constant, warmup_epochs: 0.5, warmup_from: base%s}"
    assert any("`lr_schedule.warmup_from`" in line for line in make_planner(rates % "", text=SIX).workload.notes)
    scaled = rates % ", scale_with_batch: linear, reference_batch_size: 4"
    assert not any("warmup_from" in line for line in make_planner(scaled, text=SIX).workload.notes)
