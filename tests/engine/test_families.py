"""ResNet, LSTM and Transformer keep the first promise by both kinds of local losses: the same bits, however they run.

`test_same_bits.py` holds it for every partition of a VGG. Here it is residual ways, sequences packed by their lengths,
states handed on, and dropout in attention that could break it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from alray.orchestrate import Finished

from .conftest import Workshop
from .test_same_bits import same

SPEC = """
name: {name}
seed: 3
data: {data}
model:
  components:
{components}
method: {method}
optimizer: {{kind: adam, lr: 3e-3}}
pipeline: {{costs: [&cost {{forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}}, *cost, *cost]}}
run: {{epochs: 2, evaluate_every: 2 steps, checkpoint: null}}
"""
IMAGES = "{source: synthetic, shape: [2, 8, 8], classes: 4, samples: 80, batch_size: 16}"
TEXT = (
    "{source: text_csv, train: train.csv, test: test.csv, batch_size: 16, text: {vocabulary_size: 35, max_tokens: 12}}"
)
FAMILIES = {
    "resnet": (
        IMAGES,
        [
            "{block: stem, channels: 4}",
            "{block: residual, channels: 4, layers: 2}",
            "{block: residual, channels: 6, layers: 1, stride: 2}",
        ],
    ),
    "lstm": (TEXT, ["{block: embedding, dim: 6}", "{block: lstm, hidden: 4, hand_on_state: true, repeat: 2}"]),
    "transformer": (
        TEXT,
        ["{block: embedding, dim: 8}", "{block: transformer, heads: 2, feedforward: 12, dropout: 0.3, repeat: 2}"],
    ),
}
"""Data and components of three each."""
METHODS = {
    "associated_learning": "{kind: associated_learning, label_dim: 10}",
    "supervised_contrastive": "{kind: supervised_contrastive, projection_dim: 6}",
}
WAYS = [
    ([1, 1, 1], "streamed", 1),
    ([1, 2], "overlapped", 4),
    ([1, 1, 1], "parallel_backward", 4),
    ([2, 1], "sequential", 2),
]
"""Partition, schedule, and mini-batches that may wait on an edge."""


def write_texts(folder: Path) -> None:
    """Documents of 0 to 14 words, so that every mini-batch is padded; those of 13 and 14 are cut."""
    numbers = random.Random(0)
    for split, count in (("train", 80), ("test", 20)):
        lines = []
        for index in range(count):
            words = " ".join(f"w{numbers.randrange(40)}" for _ in range(numbers.randrange(15)))
            lines.append(f'"{index % 3 + 1}","{words}"\n')
        (folder / f"{split}.csv").write_text("".join(lines), encoding="utf-8")


def of_family(workshop: Workshop, family: str, method: str) -> Workshop:
    """The workshop with a spec of the family instead of its own."""
    data, components = FAMILIES[family]
    entries = "\n".join(f"    - {entry}" for entry in components)
    workshop.spec.write_text(SPEC.format(name=family, data=data, components=entries, method=METHODS[method]))
    write_texts(workshop.folder)
    return workshop


@pytest.fixture(scope="module")
def reference_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Finished]:
    """The run of a family by a method, sequential, on one stage."""

    @cache
    def run(family: str, method: str) -> Finished:
        workshop = of_family(Workshop(tmp_path_factory.mktemp(family)), family, method)
        return workshop.run("pipeline.schedule=sequential", "pipeline.stages=1")

    return run


@pytest.mark.parametrize(("partition", "schedule", "in_flight"), WAYS, ids=str)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", FAMILIES)
def test_inline(workshop, reference_of, family, method, partition, schedule, in_flight) -> None:
    run = of_family(workshop, family, method).run(
        f"pipeline.partition={partition}", f"pipeline.schedule={schedule}", f"pipeline.in_flight={in_flight}"
    )
    same(run, reference_of(family, method))
    assert (run.summary.method, run.summary.schedule, run.summary.partition) == (method, schedule, partition)


@pytest.mark.parametrize("family", FAMILIES)
def test_between_processes(workshop, reference_of, processes, family) -> None:
    method = "supervised_contrastive"
    run = of_family(workshop, family, method).run("pipeline.partition=[1,1,1]", inline=False)
    same(run, reference_of(family, method))


@pytest.mark.parametrize("family", FAMILIES)
def test_ray(workshop, reference_of, local_ray, family) -> None:
    method = "associated_learning"
    run = of_family(workshop, family, method).run("pipeline.partition=[1,1,1]", inline=False)
    same(run, reference_of(family, method))
    assert run.summary.engine == "ray"


@pytest.mark.parametrize(
    ("family", "key"),
    [("lstm", "hand_on_state=false"), ("transformer", "dropout=0.0")],
    ids=["states", "dropout"],
)
def test_it_is_there(workshop, reference_of, family, key) -> None:
    """Without states handed on, or without dropout, the weights are others: the runs above did have them."""
    run = of_family(workshop, family, "associated_learning").run(f"model.components.1.{key}")
    assert run.error is None
    assert run.summary.weights_sha256 != reference_of(family, "associated_learning").summary.weights_sha256
