"""The ten networks of the thesis as their spec files say them: every parameter counted, and one step taken."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from alray.config.user_code import UserCode
from alray.data.batches import TrainBatches
from alray.models.component import Component
from alray.models.encoder import Tensors
from alray.runtime.stage.assemble import work_of
from alray.runtime.workload import Workload

from .mini_batches import backward, forward
from .pairwise import first_alone
from .stand_ins import Overrides, on_stand_in

pytestmark = pytest.mark.stand_ins

FOLDER = Path(__file__).parents[1] / "specs" / "al"


@dataclass(frozen=True)
class Counts:
    """Trainable scalars of each encoder, and of all bridges, of g and h of the components behind the first."""

    f: tuple[int, ...]
    b: int
    g: int
    h: int
    label_dim: int
    classes: int
    head: int
    """Of the twin's classifier."""


VGG_F = (299_136, 1_771_008, 2_360_320, 2_360_320)
RESNET_F = (1_856, 147_968, 591_104, 2_361_856, 9_442_304)
EMBEDDING = 30_000 * 300
TRANSFORMER_F = (EMBEDDING, *[517_156] * 3)
# 2 directions x 4 gates x 256 x (input + state + 2 biases).
LSTM_F = (EMBEDDING, *(2 * 4 * 256 * (width + 256 + 2) for width in (300, 512, 512)))


def vgg(classes: int) -> Counts:
    head = (2048 * 2500 + 2500) + (2500 * classes + classes)
    return Counts(VGG_F, 111_350_800, 3 * 490_700, 3 * 490_700, 700, classes, head)


def resnet(classes: int) -> Counts:
    return Counts(RESNET_F, 191_924_500, 4 * 490_700, 4 * 490_700, 700, classes, 512 * classes + classes)


def transformer(classes: int) -> Counts:
    return Counts(TRANSFORMER_F, 4 * 38_528, 3 * 16_512, 3 * 16_512, 128, classes, 300 * classes + classes)


def lstm(classes: int) -> Counts:
    """The bridges read the final states of both directions added; the twin's classifier reads both at the last word."""
    bridges = 38_528 + 3 * (256 * 128 + 128)
    return Counts(LSTM_F, bridges, 3 * 16_512, 3 * 16_512, 128, classes, 512 * classes + classes)


NETWORKS = {
    "vgg_tiny_imagenet": vgg(200),
    "vgg_cifar10": vgg(10),
    "resnet_tiny_imagenet": resnet(200),
    "resnet_cifar100": resnet(100),
    "transformer_agnews": transformer(4),
    "transformer_dbpedia": transformer(14),
    "transformer_imdb": transformer(2),
    "lstm_agnews": lstm(4),
    "lstm_dbpedia": lstm(14),
    "lstm_imdb": lstm(2),
}


METHODS = {
    "associated_learning": None,
    "backpropagation": "# Its twin by backpropagation: ",
    "supervised_contrastive": "# By contrastive local losses: ",
}
"""How the line of a spec's header begins that has the overrides for it."""
STEPS = {("transformer_agnews", "backpropagation")}
"""The other networks take their step in `make test-all`."""


def workload_of(name: str, method: str, stand_ins: Mapping[str, Overrides]) -> Workload:
    file = FOLDER / f"{name}.yaml"
    overrides = ["data.batch_size=2", "data.workers=0"]
    begins = METHODS[method]
    if begins is not None:
        lines = file.read_text(encoding="utf-8").splitlines()
        (found,) = (line.removeprefix(begins) for line in lines if line.startswith(begins))
        overrides += shlex.split(found)
    loaded = on_stand_in(file, stand_ins, *overrides)
    assert loaded.spec.method.kind == method
    return Workload.open(loaded.spec, UserCode(file.parent))


def check_counts(workload: Workload, expected: Counts) -> None:
    """Of the network as the spec says it, on the meta device."""
    parts = [workload.network.component(index, "meta").part_parameters() for index in range(len(workload.network))]
    assert tuple(part["f"] for part in parts) == expected.f
    if workload.spec.method.kind == "backpropagation":
        assert sum(sum(part.values()) - part["f"] for part in parts) == expected.head
    elif workload.spec.method.kind == "associated_learning":
        assert sum(part["b"] for part in parts) == expected.b
        assert parts[0]["g"] == expected.classes * expected.label_dim + expected.label_dim
        assert parts[0]["h"] == expected.label_dim * expected.classes + expected.classes
        assert sum(part["g"] for part in parts[1:]) == expected.g
        assert sum(part["h"] for part in parts[1:]) == expected.h


def first_batch(workload: Workload) -> Tensors:
    with TrainBatches(workload.data, seed=workload.spec.seed, start_step=0, end_step=1, workers=0) as batches:
        batch = next(batches)
    assert len(batch.samples) == 2
    mask = {} if batch.mask is None else {"mask": batch.mask}
    return {"s": batch.samples, "labels": batch.labels, **mask}


def one_step(components: list[Component], incoming: Tensors) -> tuple[Tensors, dict[int, Tensors]]:
    """F, B and U; every gradient is looked at."""
    stage = work_of(components)
    outgoing = forward(stage, incoming, 1)
    losses = backward(stage)
    for component in components:
        for name, parameter in component.named_parameters():
            assert parameter.grad is not None, name
            assert torch.isfinite(parameter.grad).all(), name
    stage.update(1e-4, step=1)
    return outgoing, losses


@pytest.mark.few
@pytest.mark.parametrize("method", first_alone(METHODS))
@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_the_network_of_the_thesis(
    name: str, method: str, stand_ins: Mapping[str, Overrides], one_thread: None
) -> None:
    check_counts(workload_of(name, method, stand_ins), NETWORKS[name])


@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(name, method, marks=[] if (name, method) in STEPS else pytest.mark.full)
        for name in NETWORKS
        for method in METHODS
    ],
)
def test_it_takes_a_step(name: str, method: str, stand_ins: Mapping[str, Overrides], one_thread: None) -> None:
    """Of local losses a component at a time: the bridges of one network together hold up to 192 million parameters."""
    workload = workload_of(name, method, stand_ins)
    network, losses = workload.network, {}
    incoming = first_batch(workload)
    if method == "backpropagation":
        _, losses = one_step([network.component(index, "cpu") for index in range(len(network))], incoming)
        assert set(losses) == {len(network) - 1}
    else:
        for index in range(len(network)):
            incoming, own = one_step([network.component(index, "cpu")], incoming)
            losses |= own
        assert set(losses) == set(range(len(network)))
    assert all(torch.isfinite(loss) for own in losses.values() for loss in own.values())
