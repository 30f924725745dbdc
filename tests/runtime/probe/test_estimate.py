"""Costs: sizes counted without running anything, times measured without changing anything."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import torch

from alray.core.errors import PlanError
from alray.data.batches import TrainBatches
from alray.planning.prediction.costs import Costs
from alray.runtime.probe.estimate import costs_on, estimate_costs, given_costs
from alray.runtime.probe.measure import Surroundings, probe_costs

CPU = torch.device("cpu")
TIMES = {"forward_s", "label_s", "backward_s", "update_s", "infer_s", "route_s"}
METHODS = ["method.label_dim=5", "method={kind: backpropagation}", "method={kind: supervised_contrastive}"]
DRAWING = """\
from torch import nn


def block(input):
    return nn.Sequential(nn.Dropout(0.5), nn.Conv2d(input[0], 3, 1))
"""


@pytest.fixture(autouse=True)
def short_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alray.runtime.probe.timing.PROBE_S", 0.0)


def probe(workload, **changes: Any) -> Costs:
    with TrainBatches(workload.data, seed=0, start_step=0, end_step=1, workers=0) as batches:
        return probe_costs(workload.network, next(batches), Surroundings(CPU, **changes))


def estimate(workload) -> Costs:
    return estimate_costs(workload.network, batch_size=8, device=CPU)


def counted(workload) -> Costs:
    """Estimated, or for the machines of the spec."""
    machines = workload.spec.machines
    if machines is None:
        return estimate(workload)
    device = machines.described().kinds[0]
    return costs_on(workload.network, batch_size=8, device=device, here=CPU)


def sizes(costs: Costs) -> list[dict[str, object]]:
    return [{key: value for key, value in asdict(entry).items() if key not in TIMES} for entry in costs.components]


@pytest.mark.few
@pytest.mark.parametrize("method", METHODS)
def test_a_probe_finds_the_sizes_that_counting_finds(make_workload, method):
    workload = make_workload(method)
    assert sizes(probe(workload)) == sizes(estimate(workload))


@pytest.mark.few
@pytest.mark.parametrize("method", METHODS)
def test_every_time_is_more_than_nothing(make_workload, method):
    workload = make_workload(method)
    probed, estimated = probe(workload), estimate(workload)
    assert (probed.source, estimated.source) == ("probe", "estimated")
    for costs in (probed, estimated):
        assert costs.batch_size == 8 and costs.threads == 1 and "(" in costs.device
        assert all(entry.forward_s > 0 and entry.backward_s > 0 and entry.update_s > 0 for entry in costs.components)
        assert all(entry.infer_s > 0 and entry.route_s > 0 for entry in costs.components)
        local = workload.network.method.local_losses
        assert all((entry.label_s > 0 or not local) and entry.label_s < entry.backward_s for entry in costs.components)
    assert 0 < probed.edge_s_per_byte < 1e-6


def test_sizes_by_hand(make_workload):
    """[4 channels on 8 x 8] then [6, halved to 4 x 4]; batch 8, label_dim 5, 4 classes, float32, Adam."""
    first, second = estimate(make_workload("method.bridge.pool=2")).components
    f, b, g, h = 2 * 4 * 9 + 8, 4 * 4 * 5 + 5, 4 * 5 + 5, 5 * 4 + 4
    assert first.parameters == f + b + g + h
    assert first.gradient_bytes == 4 * first.parameters and first.optimizer_bytes == 8 * first.parameters
    assert first.parameter_bytes == 4 * (first.parameters + 4 + 4) + 8  # and batch norm's mean, variance, count
    assert first.output_shape == (4, 8, 8) and second.output_shape == (6, 4, 4)
    assert first.infer_bytes == 8 * 4 * 64 * 4 and first.output_bytes == first.infer_bytes + 8 * 5 * 4
    assert second.output_bytes == 8 * 6 * 16 * 4 + 8 * 5 * 4
    assert first.label_bytes == second.label_bytes == 8 * 5 * 4
    assert first.route_bytes == 8 * 4 * 4 and second.route_bytes == 8 * 5 * 4
    # What autograd keeps at the least: what batch norm and ReLU of the first block hold.
    assert first.activation_bytes >= 2 * first.infer_bytes


@pytest.mark.parametrize(
    "optimizer", ["optimizer={kind: sgd, lr: 0.1}", "optimizer={kind: sgd, lr: 0.1, momentum: 0.9}"]
)
def test_optimizer_bytes_follow_the_optimizer(make_workload, optimizer):
    (first, _) = estimate(make_workload(optimizer)).components
    assert first.optimizer_bytes == (4 * first.parameters if "momentum" in optimizer else 0)


def test_an_average_of_late_gradients_keeps_buffers_for_the_update(make_workload):
    """The mean and the variance of batch normalisation, of 4 channels; 2bw takes the next mini-batch before it."""
    pipeline = "pipeline={stages: 2, micro_batches: 4, micro_batch_norm: accept, schedule: %s}"
    keys = ("method=backpropagation", "optimizer.ema_decay=0.9")
    late, on_time = (
        estimate(make_workload(*keys, pipeline % schedule)).components[0].optimizer_bytes
        for schedule in ("2bw", "1f1b")
    )
    assert late - on_time == 4 * (4 + 4)


@pytest.mark.few
@pytest.mark.parametrize("kind", ["lamb", "muon"])
def test_optimizer_bytes_are_those_that_updates_make(make_workload, kind):
    """Without the counts of steps, which are a few bytes for each parameter."""
    workload = make_workload(f"optimizer={kind}")
    (first, _) = estimate(workload).components
    component = workload.network.component(0, "cpu")
    for optimizer in component.optimizers().values():
        for parameter in optimizer.parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step(0.1)
    states = [
        state for optimizer in component.optimizers().values() for state in optimizer.state_dict()["state"].values()
    ]
    held = [value for state in states for value in state.values() if isinstance(value, torch.Tensor) and value.ndim]
    assert first.optimizer_bytes == sum(value.nbytes for value in held)


@pytest.mark.few
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("fails", [False, True])
def test_probing_leaves_the_process_as_it_was(make_workload, monkeypatch, threads, fails):
    own = "model.components.0={block: 'python:own_blocks.block'}"
    workload = make_workload(own, f"resources.threads={3 - threads}", code=DRAWING)
    if fails:
        monkeypatch.setattr("alray.runtime.probe.measure._time_packing", lambda nbytes: 1 / 0)
    torch.set_num_threads(threads)
    torch.manual_seed(3)

    def state() -> tuple[object, ...]:
        return (
            torch.get_num_threads(),
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.cudnn.benchmark,
            torch.utils.deterministic.fill_uninitialized_memory,
            tuple(torch.random.get_rng_state().tolist()),
        )

    before = state()
    if fails:
        with pytest.raises(ZeroDivisionError):
            probe(workload)
    else:
        probe(workload)
        estimate(workload)
    assert state() == before


def test_probing_does_not_change_what_is_built_later(make_workload):
    workload = make_workload()
    before = workload.network.component(1, "cpu").weights()
    probe(workload)
    after = workload.network.component(1, "cpu").weights()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_given_times_go_with_counted_sizes(make_workload):
    estimated = estimate(make_workload())
    from types import SimpleNamespace

    entries = [SimpleNamespace(forward_s=1.0 + place, backward_s=2.0, update_s=0.5) for place in range(2)]
    given = given_costs(estimated, entries, batch_size=estimated.batch_size)
    assert given.source == "given" and [entry.train_s for entry in given.components] == [3.5, 4.5]
    assert sizes(given) == sizes(estimated)
    with pytest.raises(PlanError, match="has 1 entries, the model has 2 components"):
        given_costs(estimated, entries[:1], batch_size=estimated.batch_size)
    for counted, own in zip(estimated.components, given.components, strict=True):
        slower = own.forward_s / counted.forward_s
        assert own.infer_s == pytest.approx(slower * counted.infer_s)
        assert own.route_s == pytest.approx(slower * counted.route_s)
    quarter = given_costs(estimated, entries, batch_size=4 * estimated.batch_size).components[1]
    assert (quarter.forward_s, quarter.backward_s, quarter.update_s) == (0.5, 0.5, 0.5)
    assert quarter.infer_s == pytest.approx(given.components[1].infer_s / 4)


def test_supervised_contrastive_by_hand(make_workload):
    """A projection of 3 behind 4 channels on 4 x 4, then 4 classes behind 6 channels on 4 x 4; labels go along."""
    first, second = estimate(make_workload("method={kind: supervised_contrastive, projection_dim: 3}")).components
    assert first.parameters == 2 * 4 * 9 + 8 + (64 * 3 + 3) + (3 * 3 + 3)
    assert second.parameters == 4 * 6 * 9 + 12 + (96 * 4 + 4)
    assert first.infer_bytes == 8 * 4 * 64 * 4 and first.output_bytes == first.infer_bytes + 8 * 8
    assert second.route_bytes == 8 * 4 * 4
    assert (first.ends_route, second.ends_route) == (False, True)


def test_where_routes_end(make_workload):
    ends = [[entry.ends_route for entry in estimate(make_workload(method)).components] for method in METHODS]
    assert ends == [[True, True], [False, True], [False, True]]


FROZEN = """\
from torch import nn


def block(input):
    return nn.Sequential(nn.Linear(input[0], 64), nn.Linear(64, 64).requires_grad_(False))
"""


@pytest.mark.parametrize("machines", ["null", "{nodes: 2xA100}"])
def test_an_update_leaves_frozen_weights_as_they_are(make_workload, machines):
    """Of SGD: so the same as of the weights that are trained alone."""
    keys = ("method=backpropagation", "optimizer={kind: sgd, lr: 0.1}", "data.shape=[4]", f"machines={machines}")
    blocks = "model.components=[{block: 'python:own_blocks.block'}, {block: linear, width: 4}]"
    part, whole = (
        counted(make_workload(*keys, blocks, code=code)).components[0]
        for code in (FROZEN.replace(", nn.Linear(64, 64).requires_grad_(False)", ""), FROZEN)
    )
    assert whole.parameter_bytes - part.parameter_bytes == 4 * 64 * 65
    assert whole.update_s == part.update_s


@pytest.mark.parametrize("machines", ["null", "{nodes: 2xA100}"])
def test_an_update_of_several_mini_batches_is_divided_among_them(make_workload, machines):
    """Adam goes through four tensors of the size of a parameter, or more. A mini-batch adds one to another."""
    keys = ("method=backpropagation", f"machines={machines}")
    often, sometimes, seldom = (
        counted(make_workload(*keys, f"optimizer.accumulate={number}")).components[0].update_s
        for number in (1, 4, 1_000_000)
    )
    assert sometimes - seldom == pytest.approx(often / 4, rel=1e-4) and seldom < often
