"""What a method says of itself is what its components do: edges, labels, routes; and what it may not say."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from alray.config.sections.method import METHODS
from alray.core.errors import SpecError
from alray.models.network import Network
from alray.models.readout import Features
from alray.models.shape import Shape
from alray.parts.methods.channel_goodness.method import ClassGoodness
from alray.parts.methods.local_error_signals.method import Transformed

from ..mini_batches import forward_step

THREE = "model.components=[{block: vgg, channels: [4], repeat: 2}, {block: mlp, widths: [8]}]"
OF_CLASSES = [kind for kind, section in METHODS.sections.items() if "classification" in section.known_tasks()]
LOCAL = [kind for kind in OF_CLASSES if METHODS.sections[kind].local_losses]
LABELS = {"labels": Shape((), torch.int64)}
OWN = """\
from alray.parts.methods.supervised_contrastive.method import ContrastiveMethod
from alray.parts.methods.backpropagation.method import BackpropagationMethod


class Everywhere(ContrastiveMethod):
    def __init__(self, task):
        super().__init__(task, projection_dim=3, temperature=0.1, head="auto", label_smoothing=0.0)

    def component(self, index, f, facts, make):
        component = super().component(self.task.num_components - 1, f, facts, make)
        component.index = index
        return component


class Gradients(BackpropagationMethod):
    def __init__(self, task):
        super().__init__(task, head="auto", label_smoothing=0.0)
"""


def test_a_label_chain_narrower_than_the_classes_is_told(make_network: Callable[..., Any]) -> None:
    assert "fewer than the 4 classes" in make_network("method.label_dim=3", THREE).notes[0]
    for others in (("method.label_dim=4",), ("task={kind: regression}", "method.label_dim=3")):
        assert not make_network(*others, THREE).notes


def test_edges_by_hand(make_network: Callable[..., Any]) -> None:
    """Maps of 4 x 8 x 8 and 8 values go up, with a code of 5 values, with the labels or with nothing else."""
    maps, code = Shape((4, 8, 8)), Shape((5,))
    al, scpl, bp = (
        make_network(method, THREE)
        for method in ("method.label_dim=5", "method=supervised_contrastive", "method=backpropagation")
    )
    assert al.edge(0) == {"s": maps, "t": code} and al.labels(0) == LABELS and al.labels(2) == {"t": code}
    assert scpl.edge(0) == {"s": maps} | LABELS and scpl.labels(2) == LABELS
    assert bp.edge(0) == {"s": maps} | LABELS and bp.labels(0) == bp.labels(2) == LABELS
    assert [al.route_shape(above) for above in range(3)] == [(4,), (5,), (5,)]
    assert [bp.route_shape(above) for above in range(3)] == [(4,)] * 3


def test_a_route_where_the_method_says_there_is_none_is_refused(make_network: Callable[..., Any]) -> None:
    network = make_network("method={kind: 'python:own_blocks.Everywhere'}", THREE, code=OWN)
    with pytest.raises(SpecError, match="gave no fitting component 0"):
        network.component(0, "cpu")


def test_a_method_of_one_s_own_has_local_losses(make_network: Callable[..., Any]) -> None:
    with pytest.raises(SpecError, match="local_losses = False"):
        make_network("method={kind: 'python:own_blocks.Gradients'}", THREE, code=OWN)


NET = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(128, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
"""
OF_MODEL = "model={from: 'python:own_blocks.Net', components: 2}"


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (("method=noprop", OF_MODEL), "every encoder of `noprop` takes the samples"),
        (("method=auglocal", OF_MODEL), "`auglocal` builds copies of encoders for other shapes"),
        (("method=forward_forward", "model.components=[{block: linear, width: 4}]"), "over the first 4 values"),
    ],
)
def test_what_a_method_cannot_train_is_refused(make_network: Callable[..., Any], overrides, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        make_network(*overrides, code=NET, sample=(2, 8, 8) if OF_MODEL in overrides else (3,)).component(0, "cpu")


@pytest.mark.parametrize(("projection", "component"), [("8", 0), ("null", None)])
def test_projectors_that_normalise_need_two_samples(
    make_network: Callable[..., Any], projection: str, component: int | None
) -> None:
    method = f"method={{kind: decoupled_information, projection_dim: {projection}}}"
    network = make_network(method, "model.components=[{block: mlp, widths: [8]}]", sample=(20,))
    assert network.needs_two_samples == component
    assert network.method.normalises_batches == (component == 0)


@pytest.mark.few
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("widths", ["[256]", "[400, 200, 300]", "[2000, 2000]"])
def test_goodness_begins_near_half_its_threshold(make_network: Callable[..., Any], widths: str, precision: str) -> None:
    """That of every layer, whatever its width; with the initial weights of other methods it begins near a sixth."""
    components = [f"{{block: mlp, widths: [{width}]}}" for width in widths.strip("[]").split(", ")]
    keys = (f"model.components=[{', '.join(components)}]", f"run.precision={precision}")
    network = make_network("method=forward_forward", *keys, sample=(100,))
    incoming = {"s": torch.randn(64, 100, dtype=network.dtype), "labels": torch.arange(64) % 4}
    for index in range(len(network)):
        incoming = forward_step(network.component(index, "cpu"), incoming, 1)
        assert float(incoming["s"].square().mean()) == pytest.approx(0.5, abs=0.15)


def test_a_model_from_elsewhere_keeps_its_weights_under_forward_forward(make_network: Callable[..., Any]) -> None:
    code = (
        "from torch import nn\n\n\nclass Net(nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))\n"
    )
    keys = ("model={from: 'python:own_blocks.Net', components: 2}",)
    of = {
        method: make_network(f"method={method}", *keys, sample=(9,), code=code).component(0, "cpu").f.state_dict()
        for method in ("forward_forward", "decoupled_greedy")
    }
    for name, weight in of["decoupled_greedy"].items():
        assert torch.equal(weight, of["forward_forward"][name])


def test_forward_forward_refuses_texts(make_network: Callable[..., Any]) -> None:
    words = Shape((7,), torch.int64, words=("<pad>", "<unk>", "one"))
    network = make_network("method=forward_forward", "model.components=[{block: embedding, dim: 4}]", sample=words)
    with pytest.raises(SpecError, match="writes the label over values of the sample"):
        network.component(0, "cpu")


def test_channels_that_come_last_are_channels() -> None:
    """As in maps of Swin: `[N, height, width, channels]`."""
    first, last = Shape((6, 4, 5)), Shape((4, 5, 6))
    maps = torch.randn(3, *first)
    transformed = [Transformed(cast(Any, SimpleNamespace(output=first, pooling="mean")))]
    transformed.append(Transformed(cast(Any, SimpleNamespace(output=last, pooling="channels_last"))))
    transformed[1].load_state_dict(transformed[0].state_dict())
    assert torch.equal(transformed[0](maps), transformed[1](maps.movedim(1, 3)))
    goodness = [ClassGoodness(Features(first, 1), 2), ClassGoodness(Features(last, 1, "channels_last"), 2)]
    assert torch.equal(goodness[0](maps), goodness[1](maps.movedim(1, 3)))


@pytest.mark.parametrize(
    ("method", "apart"),
    [
        ("{kind: forward_forward, prediction: activities}", "head"),
        ("{kind: local_error_signals, loss: sim}", "head"),
        ("{kind: noprop}", "o"),
        ("{kind: local_error_signals, loss: predsim}", None),
    ],
)
def test_a_readout_that_trains_no_other_part_does_not_scale_their_gradients(
    make_network: Callable[..., Network], method: str, apart: str | None
) -> None:
    """Where the readout is apart, each has the largest norm; else all together have it."""
    component = make_network(f"method={method}", "optimizer={kind: sgd, lr: 1, clip_norm: 0.5}").component(1, "cpu")
    for parameter in component.parameters():
        parameter.grad = torch.ones_like(parameter)
    component.step_optimizers(1.0)
    readout = set() if apart is None else set(getattr(component, apart).parameters())
    others = [each for each in component.parameters() if each not in readout]
    for those in (others, readout) if readout else (others,):
        assert float(nn.utils.get_total_norm([each.grad for each in those])) == pytest.approx(0.5, rel=1e-4)


def test_a_head_of_one_s_own(make_network: Callable[..., Network]) -> None:
    network = make_network("method={kind: decoupled_greedy, head: {pool: 2, hidden: 9}}")
    for index, channels in enumerate((4, 6)):
        widths = [parameter.shape for parameter in network.component(index, "cpu").head.parameters()]
        assert widths == [(9, channels * 4), (9,), (4, 9), (4,)]
