"""Predicted peak memory beside what torch's MemTracker counts while a stage trains."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from alray.models.network import Network
from alray.models.own_state import Owners
from alray.planning.prediction.costs import Costs
from alray.runtime.probe.component_memory import MemoryMeter, component_memory, recurrent_operations
from alray.runtime.probe.estimate import estimate_costs
from benchmarks.memory import NETWORKS, SMALL, WAYS, Way, costs_of, network_of, plan_of, predicted_bytes
from benchmarks.tracked_memory import tracked_peak_bytes

from ...backward_threads import of_the_calling_thread

pytestmark = of_the_calling_thread

CPU = torch.device("cpu")
PLACES = 256


AGAIN = [Way("backpropagation", name, (2, 2), 4, recomputes=True) for name in ("1f1b", "gpipe")]
SOME = {
    ("vgg", WAYS[1]),
    ("resnet", WAYS[0]),
    ("transformer", WAYS[4]),
    ("transformer", WAYS[6]),
}
"""MemTracker takes its time: seconds for one of them, eight for an LSTM by `gpipe`."""


@cache
def counted(name: str, method: str) -> tuple[Network, Costs]:
    network = network_of(name, method, SMALL)
    return network, costs_of(network, SMALL)


@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param(name, way, id=f"{name}-{way.name}", marks=[] if (name, way) in SOME else [pytest.mark.full])
        for name in NETWORKS
        for way in (*WAYS, *AGAIN)
        if way in WAYS or name != "lstm"  # of an LSTM the forwards that are kept are not predicted well either
    ],
)
def test_the_prediction_is_within_15_percent(name: str, way: Way, one_thread: None) -> None:
    """Of an LSTM in micro-batches less than half of what is held may be predicted: on some processors each forward
    keeps something that does not grow with its samples."""
    least = 0.45 if name == "lstm" and "micro-batches" in way.name else 0.85
    network, costs = counted(name, way.method)
    plan = plan_of(way, costs)
    for stage in range(plan.stages):
        measured = tracked_peak_bytes(network, plan, stage)
        assert least <= predicted_bytes(plan, stage) / measured <= 1.15, f"stage {stage}"


@pytest.mark.parametrize(("precision", "optimizer"), [("bf16", "sgd"), ("float32", "adam")])
@pytest.mark.parametrize("way", [way for way in (*WAYS, *AGAIN) if way.micro_batches > 1], ids=lambda way: way.name)
def test_micro_batches_of_a_wide_network(way: Way, precision: str, optimizer: str, one_thread: None) -> None:
    """Most of it are gradients and, in mixed precision, the lower copy of the weights that each micro-batch keeps. By
    plain SGD a backward is the peak, and by Adam an update."""
    network = network_of("mlp", way.method, SMALL, precision=precision, optimizer=optimizer)
    plan = plan_of(way, costs_of(network, SMALL))
    for stage in range(plan.stages):
        assert predicted_bytes(plan, stage) == pytest.approx(tracked_peak_bytes(network, plan, stage), rel=0.15)


@pytest.mark.few
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_recomputation_takes_less(schedule: str, one_thread: None) -> None:
    """On stage 0, where several micro-batches wait; by gpipe on the last stage too."""
    network, costs = counted("transformer", "backpropagation")
    for stage in range(2 if schedule == "gpipe" else 1):
        kept, again = (
            tracked_peak_bytes(network, plan_of(Way("backpropagation", schedule, (2, 2), 4, on), costs), stage)
            for on in (False, True)
        )
        assert again < 0.9 * kept


OWN = """\
import weakref

import torch
from torch import nn
from torch.nn import functional


class Reading(nn.Module):
    '''Asks for values: it cannot be run where tensors have none, but on the meta device it does not ask.'''

    def __init__(self, input):
        super().__init__()
        self.plain = torch.ones(3)
        self.layer = nn.Conv2d(input[0], 4, 3, padding=1)

    def forward(self, s, mask=None):
        if not s.is_meta and float(s.detach().abs().max()) > 1e6:
            return functional.relu(self.layer(s) * 1e-6)
        return functional.relu(self.layer(s))


class Referring(nn.Module):
    def __init__(self, input):
        super().__init__()
        self.layer = nn.Conv2d(input[0], 4, 3, padding=1)
        self.known = weakref.WeakSet(self.parameters())

    def forward(self, s, mask=None):
        return functional.relu(self.layer(s))


class Normed(nn.Module):
    def __init__(self, input):
        super().__init__()
        self.layer = nn.utils.weight_norm(nn.Conv2d(input[0], 4, 3, padding=1))

    def forward(self, s, mask=None):
        return functional.relu(self.layer(s))


class View(nn.Module):
    def __init__(self, input):
        super().__init__()
        self.layer = nn.Conv2d(input[0], 4, 3, padding=1)
        self.first = self.layer.weight[:1]

    def forward(self, s, mask=None):
        return functional.relu(self.layer(s))


class Weight(nn.Parameter):
    __slots__ = ("note",)


class Slots(nn.Module):
    def __init__(self, input):
        super().__init__()
        self.layer = nn.Conv2d(input[0], 4, 3, padding=1)
        self.layer.weight = Weight(self.layer.weight.detach())

    def forward(self, s, mask=None):
        return functional.relu(self.layer(s))
"""


@pytest.mark.filterwarnings("ignore:.*weight_norm")
@pytest.mark.parametrize("block", ["Reading", "Referring", "Normed", "View", "Slots"])
def test_a_block_that_asks_for_values_is_counted_on_the_meta_device(
    make_workload: Callable[..., Any], block: str
) -> None:
    workload = make_workload(
        f'model.components=[{{"block": "python:own_blocks.{block}"}}, {{"block": "vgg", "channels": [4]}}]', code=OWN
    )
    memory = component_memory(workload.network, 0, 8, CPU)
    # What autograd keeps of [8, 4, 8, 8] floats and their ReLU, at least; and not much more.
    maps = 8 * 4 * 8 * 8 * 4
    assert maps <= memory["activation_bytes"] <= 3 * maps
    assert memory["backward_peak_bytes"] >= memory["activation_bytes"]


ATTENDING = """\
import torch
from torch import nn
from torch.nn import functional


class Attending(nn.Module):
    def __init__(self, input):
        super().__init__()
        self.layer = nn.Linear(input[1], 3 * input[1])
        self.register_buffer("scale", torch.ones(input[1]))

    def forward(self, s, mask=None):
        query, key, value = self.layer(s * self.scale).unsqueeze(1).chunk(3, -1)
        return functional.scaled_dot_product_attention(query, key, value).squeeze(1)


class Plain(Attending):
    def __init__(self, input):
        super().__init__(input)
        del self.scale
        self.scale = torch.ones(input[1])
"""


@pytest.mark.parametrize("block", ["Attending", "Plain"])
def test_an_own_block_is_counted_where_it_trains(
    make_network: Callable[..., Network], monkeypatch: pytest.MonkeyPatch, block: str
) -> None:
    """Its attention in bf16 keeps less on the CPU than on the meta device, where the scores of all pairs stay."""

    def count(block: str) -> dict[str, int]:
        blocks = f"model.components=[{{block: 'python:own_blocks.{block}'}}, {{block: linear, width: 4}}]"
        network = make_network(blocks, "run.precision=bf16", code=ATTENDING, sample=(PLACES, 32))
        return component_memory(network, 0, 8, CPU)

    found = count(block)
    scores = 8 * PLACES * PLACES * 2
    assert found["activation_bytes"] < scores
    monkeypatch.setattr(Owners, "claim", lambda *_: None)
    assert found == count("Attending")


def test_without_a_gpu_its_memory_is_counted_as_that_of_a_cpu(
    make_network: Callable[..., Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch runs no backward for a GPU that is not here. On the meta device attention keeps the scores of all pairs."""
    blocks = "model.components=[{block: 'python:own_blocks.Attending'}, {block: linear, width: 4}]"
    network = make_network(blocks, "run.precision=bf16", code=ATTENDING, sample=(PLACES, 32))
    monkeypatch.setattr("alray.runtime.probe.component_memory.available", lambda kind: None)
    of_gpu, of_cpu = (component_memory(network, 0, 8, device) for device in (torch.device("cuda"), CPU))
    assert of_gpu["activation_bytes"] == of_cpu["activation_bytes"] < 8 * PLACES * PLACES * 2


def test_rows_of_one_place_are_packed_whole() -> None:
    """One of them would be empty, were it a place shorter than the others."""
    with recurrent_operations():
        packed = pack_padded_sequence(torch.zeros(4, 1, 3), torch.ones(4), batch_first=True, enforce_sorted=False)
        assert pad_packed_sequence(packed, batch_first=True, total_length=1)[0].shape == (4, 1, 3)


@pytest.mark.parametrize(("device", "copied"), [("cpu", 0), ("cuda", 1)])
def test_adam_on_a_gpu_updates_all_parameters_at_once(device: str, copied: int) -> None:
    """Its kernel takes the root of all second moments together; on a CPU it is that of one parameter."""
    network, costs = counted("transformer", "backpropagation")
    update = component_memory(network, 1, 2, torch.device(device))["update_peak_bytes"]
    assert (update == costs.components[1].gradient_bytes) == bool(copied)


@pytest.mark.parametrize("method", ["backpropagation", "associated_learning"])
def test_an_update_takes_as_much_where_gradients_wait_for_it(method: str, make_workload: Callable[..., Any]) -> None:
    each, second, third = (
        component_memory(make_workload(f"method={method}", f"optimizer.accumulate={number}").network, 1, 8, CPU)
        for number in (1, 2, 3)
    )
    assert each["update_peak_bytes"] > 0
    assert each == second == third


OWN_OPTIMIZER = '''
import torch


class Own(torch.optim.Optimizer):
    """Three values for each value of a parameter, and a count that it reads."""

    def __init__(self, params, lr, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weights in group["params"]:
                state = self.state[weights]
                if not state:
                    state |= {name: torch.zeros_like(weights) for name in ("mean", "square", "largest")}
                    state["count"] = torch.tensor(0.0)
                state["count"] += 1
                state["mean"].lerp_(weights.grad, 0.1)
                state["square"].mul_(0.9).addcmul_(weights.grad, weights.grad, value=0.1)
                torch.maximum(state["largest"], state["square"], out=state["largest"])
                rate = group["lr"] / (1 - 0.9 ** state["count"].item())
                weights.addcdiv_(state["mean"], state["largest"].sqrt().add_(1e-8), value=-rate)
'''


@pytest.mark.parametrize(
    "name",
    [
        *("Adafactor", "Adagrad", "ASGD", "own_blocks.Own"),
        *(pytest.param(each, marks=pytest.mark.full) for each in ("Adadelta", "Adamax", "NAdam", "RAdam", "Rprop")),
    ],
)
def test_an_optimizer_is_counted_as_it_is(name: str, make_workload: Callable[..., Any]) -> None:
    """Some make their state at once, and some read values: neither can be counted where tensors have none."""
    kind = f"'python:{name}'" if "." in name else f"torch, name: {name}"
    chosen = f"optimizer={{kind: {kind}, lr: 1.0e-2}}"
    workload = make_workload(chosen, "method=backpropagation", code=OWN_OPTIMIZER)
    costs = estimate_costs(workload.network, batch_size=8, device=CPU).components[1]
    component = workload.network.component(1, "cpu")
    (optimizer,) = component.optimizers().values()
    for parameter in optimizer.parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step(0.1)
    state = optimizer.state_dict()["state"].values()
    kept = [each for of_one in state for each in of_one.values() if isinstance(each, torch.Tensor) and each.ndim]
    assert costs.optimizer_bytes == pytest.approx(sum(each.nbytes for each in kept), rel=0.1)
    with MemoryMeter() as meter:
        for _ in range(2):  # the first one shows the meter what is there
            for parameter in optimizer.parameters:
                parameter.grad = torch.ones_like(parameter)
            before = meter.mark()
            optimizer.step(0.1)
    assert costs.update_peak_bytes == pytest.approx(meter.peak_bytes - before, rel=0.1)


def test_counting_allocates_nothing_and_draws_nothing(make_workload: Callable[..., Any]) -> None:
    # Weights of 2 TB: they can be counted, and not be had.
    workload = make_workload(
        'model.components=[{"block": "linear", "width": 1000000}, {"block": "linear", "width": 500000}]'
    )
    before = torch.random.get_rng_state()
    costs = estimate_costs(workload.network, batch_size=8, device=CPU)
    assert costs.components[1].parameter_bytes >= 4 * 10**6 * 5 * 10**5
    assert costs.components[1].backward_peak_bytes >= costs.components[1].gradient_bytes
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.full  # the LSTM of the test of memory has sequences too
def test_sequences_are_counted_at_short_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    network, costs = counted("lstm", "backpropagation")
    monkeypatch.setattr("alray.runtime.probe.component_memory._LENGTHS", (SMALL.places - 1, SMALL.places))
    whole = component_memory(network, 1, SMALL.batch, CPU)
    for name, exact in whole.items():
        if "fixed" not in name:
            assert getattr(costs.components[1], name) == pytest.approx(exact, rel=0.1), name
