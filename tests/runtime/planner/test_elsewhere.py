"""Plans for machines that are not here: every stage has a device of its own, and costs say where they come from."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alray.config.user_code import UserCode
from alray.core.errors import CheckpointError, PlanError, SpecError
from alray.core.run_folder.records import write_json
from alray.planning.prediction.machines import DEVICES, USUAL
from alray.planning.prediction.plan import Plan
from alray.planning.prediction.seconds import share_s
from alray.runtime.planner.planning import Planner

COST = "{forward_s: 1.0e-3, backward_s: 2.0e-3, update_s: 1.0e-3}"
EIGHT = f"""\
name: eight
data: {{source: synthetic, shape: [4], classes: 2, samples: 64, batch_size: 8}}
model: {{components: [{{block: linear, width: 3, repeat: 8}}]}}
optimizer: {{kind: sgd, lr: 0.1}}
pipeline: {{stages: 8, costs: [{", ".join([COST] * 8)}]}}
run: {{epochs: 1}}
"""
SMALL_DEVICE = "{memory: 1 MB, bandwidth: 1 GB/s, float32: 1 TFLOP/s}"
CHAINS = Path(__file__).parents[3] / "docs" / "published_runs" / "chains"


@pytest.fixture
def planned(load_small: Callable[..., Any], one_thread: None) -> Callable[..., Plan]:
    """The plan of a spec, without a run."""

    def make(*overrides: str, text: str = EIGHT) -> Plan:
        loaded = load_small(*overrides, text=text)
        planner = Planner.open(loaded.spec, UserCode(loaded.file.resolve().parent), without_data=True)
        return planner.plan(planner.costs(probe=False))

    return make


def test_every_stage_has_a_device_of_its_own(planned: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    assert planned().predicted_step_time_s > 0.016, "eight stages share two processors"
    plan = planned("machines={nodes: 8xA100}")
    assert plan.predicted_step_time_s == pytest.approx(0.004) and plan.cores is None
    assert plan.machines == "8 A100" and "as published" in plan.basis["links"]
    slow = planned("machines={nodes: 8xA100, link: 80 kbit/s}")
    assert "link" in slow.limited_by and slow.predicted_step_time_s > 0.004
    with pytest.raises(PlanError, match="8 stages in 2 replicas need 16 devices"):
        planned("machines={nodes: 8xA100}", "replicas.count=2")
    with pytest.raises(PlanError, match="no cut of 8 components"):
        planned(f"machines={{nodes: 8xsmall, link: 1 GB/s, devices: {{small: {SMALL_DEVICE}}}}}")


def test_slower_devices_get_fewer_components(planned: Callable[..., Plan]) -> None:
    wide = ("model.components.0.width=2000", "data.batch_size=32", "pipeline.costs=null", "pipeline.stages=2")
    plan = planned("machines={nodes: '1xA100,1xP40', link: 25 GB/s}", *wide)
    assert plan.stage_speed[0] == 1 and plan.stage_speed[1] < 0.8 and plan.partition[0] > plan.partition[1]
    assert plan.costs.source == "roofline" and "NVIDIA A100 datasheet" in plan.basis["times"]
    low, high = plan.predicted_step_range_s or (0.0, 0.0)
    assert low < plan.predicted_step_time_s < high
    with pytest.raises(PlanError, match="no published speed in bf16"):
        planned("machines={nodes: 2xV100}", "run.precision=bf16", *wide)
    with pytest.raises(PlanError, match="nothing is published of the speed of `24GB`"):
        planned("machines={nodes: 2x24GB, link: 1 GB/s}", *wide)


def test_devices_that_no_stage_takes_refuse_nothing(planned: Callable[..., Plan]) -> None:
    bf16 = ("machines={nodes: '2xA100,2xV100', link: 25 GB/s}", "run.precision=bf16", "pipeline.costs=null")
    assert planned(*bf16, "pipeline.stages=2").stage_speed == ()
    with pytest.raises(PlanError, match="V100 has no published speed in bf16"):
        planned(*bf16, "pipeline.stages=3")


def test_the_slower_of_two_devices_may_take_fewer_samples(planned: Callable[..., Plan]) -> None:
    wide = ("model.components.0.width=2000", "data.samples=8192", "pipeline.costs=null", "pipeline.stages=1")
    unlike = ("data.batch_size=4096", "machines={nodes: '1xA100,1xT4', link: 25 GB/s}", "replicas.count=2")
    fitting, reversed_ = (
        planned(f"replicas.shares={shares}", *unlike, *wide) for shares in ("[3072,1024]", "[1024,3072]")
    )
    fitting_s, reversed_s = fitting.predicted_step_time_s, reversed_.predicted_step_time_s
    assert fitting_s < 0.7 * reversed_s, "averages, and reading the samples here, take some of both"
    assert fitting.evaluation_s == pytest.approx(reversed_.evaluation_s), "replica 0 evaluates, on its own device"


GPT = """\
name: layers
data: {source: text, folder: none, tokens: bytes, batch_size: 1, assume: {classes: 256, samples: 100}}
task: {kind: next_token}
model: {components: [{block: transformer, causal: true, dim: 0, heads: 12, feedforward: 0, repeat: 3}]}
method: backpropagation
resources: {tf32: none}
run: {steps: 1}
machines:
  nodes: 1xDEVICE
  devices: {tensor: {memory: 16 GB, bandwidth: 900 GB/s, float32: 15.7 TFLOP/s, bf16: 125 TFLOP/s}}
"""


@pytest.mark.few
@pytest.mark.parametrize(
    ("device", "precision", "width", "words", "samples", "measured_s"),
    [
        # docs/published_runs/ds3lab_small_xl8.yaml: forward of a layer as the first rows of its tables have it.
        ("V100", "float32", 768, 2048, 1, (5.2e-3, 5.9e-3)),
        ("tensor", "bf16", 2048, 2048, 1, (5.5e-3, 5.9e-3)),  # float16 on V100
        # docs/published_runs/layer_by_micro_batch.csv
        ("P100", "float32", 768, 128, 32, (9.75e-3, 9.75e-3)),
        ("V100", "float32", 1024, 128, 32, (10.4e-3, 10.4e-3)),
    ],
)
def test_published_layers_lie_within_the_spread(
    load_small: Callable[..., Any],
    device: str,
    precision: str,
    width: int,
    words: int,
    samples: int,
    measured_s: tuple[float, float],
) -> None:
    loaded = load_small(
        *(f"model.components.0.{key}={value}" for key, value in {"dim": width, "feedforward": 4 * width}.items()),
        f"model.components.0.heads={16 if width > 768 else 12}",
        *(f"data.context={words}", f"data.batch_size={samples}", f"run.precision={precision}"),
        text=GPT.replace("DEVICE", device),
    )
    planner = Planner.open(loaded.spec, UserCode(loaded.file.resolve().parent), without_data=True)
    costs = planner.costs(probe=False)
    forward_s, (low, high) = costs.components[1].forward_s, costs.spread
    assert low * forward_s < measured_s[0] and measured_s[1] < high * forward_s
    assert forward_s / measured_s[1] > 0.85 and forward_s / measured_s[0] < 1.15


def test_a_part_never_takes_less_than_its_share(planned: Callable[..., Plan]) -> None:
    """By rounding a third did, and the bound then let all micro-batches be twice as fast."""
    wide = ("model.components.0.width=1024", "data.shape=[1024]", "data.batch_size=5760", "data.samples=8000")
    for parts in (3, 6, 12):
        plan = planned(
            "machines={nodes: 2xT4, link: 25 GB/s}",
            *wide,
            "method=backpropagation",
            "pipeline.costs=null",
            "pipeline.schedule=gpipe",
            "pipeline.stages=2",
            f"pipeline.micro_batches={parts}",
        )
        assert all(min(each.forward_fixed_s, each.backward_fixed_s) >= 0.0 for each in plan.costs.components)


def test_a_micro_batch_reads_all_weights(planned: Callable[..., Plan]) -> None:
    """With few samples a wide layer takes as long as its weights take to be read, however few they are."""
    plan = planned(
        "machines={nodes: 2xT4, link: 25 GB/s}",
        *("model.components.0.width=2048", "data.shape=[2048]", "data.batch_size=64", "data.samples=80"),
        "pipeline.costs=null",
        *("method=backpropagation", "pipeline.schedule=gpipe", "pipeline.stages=2", "pipeline.micro_batches=16"),
    )
    wide = plan.costs.components[1]
    micro_batch_s = share_s(wide.forward_s, wide.forward_fixed_s, 1 / 16)
    assert micro_batch_s > wide.parameter_bytes / (USUAL.bandwidth * DEVICES["T4"].bytes_per_s)


@pytest.fixture
def shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alray.runtime.probe.timing.PROBE_S", 0.0)


def test_costs_of_a_file_are_those_that_were_measured(
    make_planner: Callable[..., Planner], planned: Callable[..., Plan], tmp_path: Path, shrunk: None
) -> None:
    measured = make_planner("pipeline.costs=null", text=EIGHT).costs_for_others(print)
    file = tmp_path / "costs.json"
    write_json(file, measured.as_json())
    plan = planned("machines={nodes: 8xcpu}", f"pipeline.costs={file}")
    of_file = [(each.forward_s, each.backward_s, each.update_s) for each in plan.costs.components]
    assert of_file == [(each.forward_s, each.backward_s, each.update_s) for each in measured.components]
    assert "alray probe" in plan.basis["times"] and measured.device in plan.basis["times"]
    half = planned("machines={nodes: 8xcpu}", f"pipeline.costs={file}", "data.batch_size=4").costs
    assert half.components[0].forward_s == pytest.approx(measured.components[0].forward_s / 2)
    assert half.components[0].output_bytes == measured.components[0].output_bytes / 2
    assert "which stands for A100" in planned("machines={nodes: 8xA100}", f"pipeline.costs={file}").basis["times"]
    other = (
        "resources.tf32=all",
        "run.deterministic=false",
        "optimizer.ema_decay=0.9",
        "method.label_activation=none",
    )
    told = planned(f"pipeline.costs={file}", "optimizer.lr=0.5", *other).basis["times"]
    assert 'with method.label_activation "tanh" (here "none"), with optimizer.ema_decay null (here 0.9)' in told
    assert 'resources.tf32 "convolutions" (here "all"), with run.deterministic true (here false)' in told
    assert "optimizer.lr" not in told and "(here" not in plan.basis["times"]
    with pytest.raises(PlanError, match="is of another network: component 0 has"):
        planned(f"pipeline.costs={file}", "model.components.0.width=4")
    with pytest.raises(PlanError, match="another precision: float32 there and bf16 here"):
        planned(f"pipeline.costs={file}", "run.precision=bf16")
    with pytest.raises(PlanError, match="another optimizer: sgd there and adam here"):
        planned(f"pipeline.costs={file}", "optimizer.kind=adam")
    with pytest.raises(PlanError, match=r"another optimizer\.accumulate: 1 there and 2 here"):
        planned(f"pipeline.costs={file}", "optimizer.accumulate=2")
    with pytest.raises(PlanError, match="another method: associated_learning there and backpropagation here"):
        planned(f"pipeline.costs={file}", "method=backpropagation")
    with pytest.raises(PlanError, match=r"another run\.compile: False there and True here"):
        planned(f"pipeline.costs={file}", "run.compile=true")
    wider = measured.as_json()
    wider["components"][3]["output_shape"] = [5]
    write_json(tmp_path / "wider.json", wider)
    with pytest.raises(PlanError, match="component 3 has 5 numbers a sample as output there and 3 here"):
        planned(f"pipeline.costs={tmp_path / 'wider.json'}")
    larger = measured.as_json()
    larger["components"][0]["output_bytes"] *= 2
    write_json(tmp_path / "larger.json", larger)
    with pytest.raises(PlanError, match="component 0 has 1,048 bytes a sample as output there and 524 here"):
        planned(f"pipeline.costs={tmp_path / 'larger.json'}")
    with pytest.raises(PlanError, match="has 8 components, the model has 9"):
        planned(f"pipeline.costs={file}", "model.components.0.repeat=9")
    beyond: list[tuple[str, Any]] = [("backward_s", -0.5), ("forward_s", 1e308), ("forward_fixed_s", float("-inf"))]
    for name, value in (*beyond, ("activation_bytes", -1), ("activation_bytes", 10**400)):
        damaged = measured.as_json()
        damaged["components"][1][name] = value
        file.write_text(json.dumps(damaged))
        with pytest.raises(CheckpointError, match=rf"components\.1\.{name}: Input should be .* than or equal to"):
            planned(f"pipeline.costs={file}")
    beyond = [("jitter_s", -1.0), ("jitter_s", float("inf")), ("contention", 0.2), ("spread", [-1.0, 0.5])]
    beyond += [("batch_size", 0), ("processor_share", 9.0), ("input_gradient_share", float("nan")), ("threads", 0)]
    for name, value in beyond:
        file.write_text(json.dumps(measured.as_json() | {name: value}))
        with pytest.raises(CheckpointError, match=f"{name}.*: Input should be"):
            planned(f"pipeline.costs={file}")
    file.write_text(json.dumps(measured.as_json() | {"spread": [1.5, 1.0]}))
    with pytest.raises(PlanError, match="`spread` is from the least to the most"):
        planned(f"pipeline.costs={file}")


@pytest.mark.parametrize(
    ("measured", "on", "stands"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100", False),
        ("NVIDIA A100-SXM4-40GB", "A100", True),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB", False),
        ("NVIDIA A100-SXM4-80GB", "A10", True),
        ("NVIDIA L40S", "L4", True),
        ("NVIDIA H100 80GB HBM3", "H100-PCIe", True),
        ("NVIDIA H100 PCIe", "H100-PCIe", False),
        ("NVIDIA GeForce RTX 4090", "RTX4090", False),
    ],
)
def test_a_device_is_known_by_its_whole_name(
    planned: Callable[..., Plan], tmp_path: Path, measured: str, on: str, stands: bool
) -> None:
    file = tmp_path / "costs.json"
    write_json(file, replace(planned().costs, device=measured, source="file").as_json())
    plan = planned(f"machines={{nodes: 8x{on}}}", f"pipeline.costs={file}")
    assert (f"which stands for {on} here" in plan.basis["times"]) == stands


def test_what_is_not_known_is_told(planned: Callable[..., Plan], tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    write_json(file, planned().costs.as_json())
    with pytest.raises(PlanError, match="nothing is published of the speed of `24GB`; describe it"):
        planned("machines={nodes: '4x24GB,4x48GB', link: 1 GB/s, within: 1 GB/s}", f"pipeline.costs={file}")
    pipeline = (
        "method=backpropagation",
        "pipeline.schedule=1f1b",
        "pipeline.micro_batches=auto",
        "pipeline.costs=null",
    )
    with pytest.raises(PlanError, match=r"pipeline.micro_batches: the memory .* not known.*resources.memory_bytes"):
        planned("machines={nodes: 8xcpu}", "pipeline.stages=8", *pipeline)


def test_a_plan_that_is_too_large_says_so(planned: Callable[..., Plan]) -> None:
    whole = planned("pipeline.partition=uniform")
    assert whole.too_large is None
    needed = max(stage.memory.total_bytes for stage in whole.stage_plans)
    plan = planned("machines={nodes: 8xcpu}", "pipeline.partition=uniform", f"resources.memory_bytes={needed - 1}")
    assert f" needs {needed:,} bytes and its device has {needed - 1:,}" in (plan.too_large or "")
    assert "no cut fits the memory of the devices" in plan.limited_by


def test_averages_of_replicas_take_their_link(planned: Callable[..., Plan], tmp_path: Path) -> None:
    """Whatever was measured in the memory of one machine."""
    two = ("replicas.count=2", "pipeline.stages=2")
    steps, costs = [], planned().costs
    for measured_s in (0.0, 1.0):
        file = tmp_path / f"{measured_s}.json"
        components = [replace(each, reduce_s=measured_s) for each in costs.components]
        write_json(file, replace(costs, components=tuple(components)).as_json())
        plan = planned("machines={nodes: 2x2xA100, link: 1 GB/s, within: 1 GB/s}", f"pipeline.costs={file}", *two)
        steps.append([each.reduce_s for each in plan.costs.components])
        assert "averages" not in plan.basis
        shared = planned("machines={nodes: 4xcpu}", f"pipeline.costs={file}", *two)
        assert ("averages of replicas are not counted" in shared.basis.get("averages", "")) == (measured_s == 0.0)
    assert steps[0] == steps[1] and 0 < steps[0][0] < 0.01


def test_averages_in_16_bits_send_as_much_of_float64(planned: Callable[..., Plan]) -> None:
    """Of gradients that are not compressed more is sent."""
    on = ("machines={nodes: 2x1xA100, link: 1 MB/s}", "pipeline.stages=1", "replicas.count=2")

    def reduce_s(compression: str, precision: str) -> float:
        kinds = f"replicas.compression={compression}", f"run.precision={precision}"
        return planned(*on, *kinds).costs.components[0].reduce_s

    assert reduce_s("bf16", "float64") == reduce_s("bf16", "float32") > 0
    assert reduce_s("none", "float64") > reduce_s("none", "float32")


@pytest.mark.parametrize("fixed_s", [-0.6, 2.0])
def test_what_does_not_depend_on_the_samples_is_any_number(
    planned: Callable[..., Plan], tmp_path: Path, fixed_s: float
) -> None:
    """Below 0 a micro-batch is faster than its share of the mini-batch. No time of other samples is below 0 then."""
    file, costs = tmp_path / "costs.json", planned().costs
    times = {"forward_s": 1.0, "forward_fixed_s": fixed_s}
    write_json(file, replace(costs, components=tuple(replace(each, **times) for each in costs.components)).as_json())
    seconds = {}
    for samples in (2, 8, 32):
        read = planned(f"pipeline.costs={file}", f"data.batch_size={samples}").costs.components[0]
        assert read.forward_fixed_s == fixed_s
        seconds[samples] = read.forward_s
    # As of a micro-batch in a plan: fixed seconds and a share of the rest, at least half of the time in proportion.
    assert seconds == pytest.approx({2: 0.125, 8: 1.0, 32: 5.8} if fixed_s < 0 else {2: 1.75, 8: 1.0, 32: 2.0})


def test_a_public_chain_stands_for_a_network(planned: Callable[..., Plan], tmp_path: Path) -> None:
    """Its least possible slowest stage is known: `optimum_s` of the file, 33 components on 8 stages."""
    plan = planned(
        "machines={nodes: 8xA100, link: 25 GB/s}",
        f"pipeline.costs={CHAINS / 'piper_bert32_a100.yaml'}",
        "model.components.0.repeat=33",
    )
    assert plan.predicted_step_time_s == pytest.approx(0.123013, rel=1e-5)
    file = tmp_path / "large.yaml"
    row = f"[a, 1.0, 2.0, 8, {10**40}]"
    columns = "[name, forward_s, backward_s, output_bytes, parameter_bytes]"
    file.write_text(f"source: own\ncolumns: {columns}\ncomponents: [{', '.join([row] * 8)}]\n", encoding="utf-8")
    with pytest.raises(PlanError, match=r"this is no chain: .*parameter_bytes"):
        planned("machines={nodes: 8xA100}", f"pipeline.costs={file}")
    assert "msr-fiddle/piper" in plan.basis["times"] and "what else a stage keeps" in plan.basis["memory"]


GROWING = "k0: &k0 {n0: 1}\n" + "".join(f"k{n}: &k{n} {{<<: [*k{n - 1}, *k{n - 1}], n{n}: 1}}\n" for n in range(1, 30))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GROWING, "more than 20,000 keys"),
        (f"source: own\ncomponents: {'[' * 3_000}{']' * 3_000}\n", "nested too deeply"),
        ("source: own\nsource: other\n", "2: source: this key is already in line 1"),
        ("source: [\n", "not YAML"),
    ],
    ids=["growing", "deep", "twice", "open"],
)
def test_a_chain_is_read_as_a_spec_is(planned: Callable[..., Plan], tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "chain.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=f"chain.yaml:.*{said}"):
        planned(f"pipeline.costs={file}")


def test_a_run_ignores_machines(load_small: Callable[..., Any]) -> None:
    loaded, said = load_small("machines={nodes: 8xA100}", text=EIGHT), []
    planner = Planner.open(loaded.spec, UserCode(loaded.file.resolve().parent), note=said.append)
    assert planner.workload.spec.machines is None and planner.workload.spec.resources.resolved_device == "cpu"
    assert any("`machines` are for plans" in line for line in said)
