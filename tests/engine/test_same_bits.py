"""The first promise: every family, method, partition, schedule and engine gives the same weights and accuracies.

Bit for bit. What could break it: strides at a boundary and in-place writes (VGG, with two blocks of the test), residual
paths, sequences packed by their lengths, states handed on, and dropout in attention.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from alray.orchestrate import Finished

from ..pairwise import all_pairs, first_alone
from .conftest import TINY, Workshop
from .process_graph import in_processes

pytestmark = pytest.mark.long

PARTITIONS = [
    [last - first for first, last in itertools.pairwise([0, *cuts, 4])]
    for stages in range(1, 5)
    for cuts in itertools.combinations(range(1, 4), stages - 1)
]
SCHEDULES = ["sequential", "parallel_backward", "overlapped", "streamed"]
METHODS = {
    "associated_learning": ("method={kind: associated_learning, label_dim: 12}",),
    "supervised_contrastive": (
        "method={kind: supervised_contrastive, projection_dim: 6}",
        "data.last_batch=keep",
    ),
}
SPEC = """
name: {name}
seed: 3
data: {data}
model:
  components:
{components}
optimizer: {{kind: adam, lr: 3e-3}}
pipeline: {{costs: [&cost {{forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}}, *cost, *cost, *cost]}}
run: {{epochs: 2, evaluate_every: 2 steps, checkpoint: null}}
"""
IMAGES = "{source: synthetic, shape: [2, 8, 8], classes: 4, samples: 80, batch_size: 16}"
TEXT = (
    "{source: text_csv, train: train.csv, test: test.csv, batch_size: 16, text: {vocabulary_size: 35, max_tokens: 7}}"
)
FAMILIES = {
    "vgg": TINY,
    "resnet": SPEC.format(
        name="resnet",
        data=IMAGES,
        components="""\
    - {block: stem, channels: 4}
    - {block: residual, channels: 4, layers: 2}
    - {block: residual, channels: 6, layers: 1, stride: 2}
    - {block: residual, channels: 6, layers: 1}""",
    ),
    "lstm": SPEC.format(
        name="lstm",
        data=TEXT,
        components="""\
    - {block: embedding, dim: 6}
    - {block: lstm, hidden: 4, hand_on_state: true, repeat: 3}""",
    ),
    "transformer": SPEC.format(
        name="transformer",
        data=TEXT,
        components="""\
    - {block: embedding, dim: 8}
    - {block: transformer, heads: 2, feedforward: 12, dropout: 0.3, repeat: 3}""",
    ),
}
"""Specs of four components each."""
IN_FLIGHT = [1, 2, 7]
"""Mini-batches that may wait on an edge."""

CYCLIC = [
    # stages, partition, and how often the model's second entry is repeated
    (2, [1, 1, 1, 1], 3),
    (2, [2, 1, 1, 2], 5),
    (2, [1, 2, 2, 1], 5),
    (2, [1, 1, 1, 1, 1, 1], 5),
    (3, [1, 1, 1, 1, 1, 1], 5),
    (1, [1, 1, 1, 1, 1, 1], 5),
]
"""Layouts with virtual stages, of four components and of six."""
ROUNDS = all_pairs(SCHEDULES, list(FAMILIES), list(METHODS), IN_FLIGHT)
DEEP = all_pairs(CYCLIC[1:], SCHEDULES, ["lstm", "transformer"], list(METHODS), IN_FLIGHT[:2])

DEEP_ROWS = [
    pytest.param(*row, marks=[pytest.mark.full] if number % 4 else [], id=" ".join(map(str, row)))
    for number, row in enumerate(DEEP)
]

PAIRS = all_pairs(PARTITIONS, SCHEDULES, list(FAMILIES), list(METHODS), IN_FLIGHT)
AL, SCPL = METHODS
FEW = [
    ([4], "sequential", "vgg", AL, 1),
    ([1, 3], "parallel_backward", "resnet", AL, 2),
    ([2, 2], "overlapped", "lstm", AL, 7),
    ([3, 1], "streamed", "transformer", AL, 1),
    ([1, 1, 2], "sequential", "resnet", SCPL, 7),
    ([1, 2, 1], "parallel_backward", "lstm", SCPL, 1),
    ([2, 1, 1], "overlapped", "transformer", SCPL, 2),
    ([1, 1, 1, 1], "streamed", "vgg", SCPL, 7),
]
"""Every partition, and every schedule with each method; `make test-all` has all pairs."""
FEW_ROUNDS = [
    ("sequential", "resnet", SCPL, 2),
    ("parallel_backward", "vgg", AL, 2),
    ("overlapped", "lstm", AL, 2),
    ("streamed", "transformer", AL, 1),
]


def same(run: Finished, reference: Finished) -> None:
    assert run.error is None
    assert run.summary.status == "finished"
    assert run.summary.weights_sha256 == reference.summary.weights_sha256
    assert run.summary.scores_per_depth == reference.summary.scores_per_depth
    assert run.summary.scores == reference.summary.scores
    assert run.summary.best == reference.summary.best


def write_texts(folder: Path) -> None:
    """Documents of 0 to 8 words, so that every mini-batch is padded; those of 8 are cut."""
    numbers = random.Random(0)
    for split, count in (("train", 80), ("test", 20)):
        lines = []
        for index in range(count):
            words = " ".join(f"w{numbers.randrange(40)}" for _ in range(numbers.randrange(9)))
            lines.append(f'"{index % 3 + 1}","{words}"\n')
        (folder / f"{split}.csv").write_text("".join(lines), encoding="utf-8")


def of_family(workshop: Workshop, family: str) -> Workshop:
    """The workshop with another spec of the family."""
    workshop.spec.write_text(FAMILIES[family])
    write_texts(workshop.folder)
    return workshop


def cyclic(stages: int, partition: list[int], repeat: int = 3) -> list[str]:
    """The overrides of a layout of `CYCLIC`."""
    cost = "{forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}"
    deeper = [f"model.components.1.repeat={repeat}", f"pipeline.costs=[{', '.join([cost] * (repeat + 1))}]"]
    layout = [f"pipeline.partition={partition}", f"pipeline.virtual_stages={len(partition) // stages}"]
    return [*(deeper if repeat > 3 else []), *layout]


@pytest.fixture(scope="session")
def reference_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Finished]:
    """The run of a family by a method, sequential, on one stage: what every other way of running it must equal."""

    @cache
    def run(family: str, method: str, repeat: int = 3) -> Finished:
        workshop = of_family(Workshop(tmp_path_factory.mktemp(family)), family)
        deep = cyclic(1, [repeat + 1], repeat)
        return workshop.run(*METHODS[method], *deep, "pipeline.schedule=sequential")

    return run


def test_there_are_eight_partitions_of_four_components() -> None:
    assert len(PARTITIONS) == 8


@pytest.mark.parametrize(
    ("partition", "schedule", "family", "method", "in_flight"),
    [*FEW, *[pytest.param(*row, marks=pytest.mark.full) for row in PAIRS if row not in FEW]],
    ids=str,
)
def test_inline(workshop, reference_of, partition, schedule, family, method, in_flight) -> None:
    run = of_family(workshop, family).run(
        *METHODS[method],
        f"pipeline.partition={partition}",
        f"pipeline.schedule={schedule}",
        f"pipeline.in_flight={in_flight}",
    )
    same(run, reference_of(family, method))
    summary = run.summary
    assert (summary.method, summary.schedule, summary.partition) == (method, schedule, partition)


@pytest.mark.parametrize(
    ("schedule", "family", "method", "in_flight"),
    [*FEW_ROUNDS, *[pytest.param(*row, marks=pytest.mark.full) for row in ROUNDS if row not in FEW_ROUNDS]],
    ids=str,
)
def test_cyclic_inline(workshop, reference_of, schedule, family, method, in_flight) -> None:
    """Components in turns on two stages, with evaluations up and down the ring, and edges that hold little."""
    layout = cyclic(*CYCLIC[0])
    run = of_family(workshop, family).run(
        *METHODS[method], *layout, f"pipeline.schedule={schedule}", f"pipeline.in_flight={in_flight}"
    )
    same(run, reference_of(family, method))
    assert (run.summary.stages, run.summary.partition) == (2, [1, 1, 1, 1])


@pytest.mark.few
@pytest.mark.parametrize(("layout", "schedule", "family", "method", "in_flight"), DEEP_ROWS)
def test_deep_cyclic_inline(workshop, reference_of, layout, schedule, family, method, in_flight) -> None:
    run = of_family(workshop, family).run(
        *METHODS[method], *cyclic(*layout), f"pipeline.schedule={schedule}", f"pipeline.in_flight={in_flight}"
    )
    same(run, reference_of(family, method, layout[2]))


@pytest.mark.few
@pytest.mark.parametrize("nodes", [(), ("one", "other")], ids=["shared memory", "gloo"])
@pytest.mark.parametrize("schedule", first_alone(reversed(SCHEDULES)))
def test_cyclic_between_processes(workshop, reference, server, schedule, nodes) -> None:
    """Edges of bounded buffers: no two stages wait for each other for ever."""
    overrides = [*cyclic(*CYCLIC[0]), f"pipeline.schedule={schedule}", "pipeline.in_flight=1"]
    with in_processes(server, nodes):
        same(workshop.run(*overrides, inline=False), reference)


@pytest.mark.full
@pytest.mark.parametrize("layout", first_alone(reversed(CYCLIC[1:])), ids=str)
def test_deep_cyclic_between_processes(workshop, reference_of, processes, layout) -> None:
    method = "associated_learning"
    overrides = [*METHODS[method], *cyclic(*layout), "pipeline.in_flight=1"]
    run = of_family(workshop, "lstm").run(*overrides, inline=False)
    same(run, reference_of("lstm", method, layout[2]))


@pytest.mark.few
@pytest.mark.parametrize("partition", first_alone(reversed(PARTITIONS), first=3), ids=str)
def test_between_processes(workshop, reference, processes, partition) -> None:
    same(workshop.run(f"pipeline.partition={partition}", inline=False), reference)


@pytest.mark.full
@pytest.mark.parametrize("schedule", first_alone(["overlapped", "sequential", "parallel_backward"]))
def test_barriers_between_processes(workshop, reference, processes, schedule) -> None:
    same(workshop.run("pipeline.partition=[1,2,1]", f"pipeline.schedule={schedule}", inline=False), reference)


@pytest.mark.few
@pytest.mark.parametrize(("family", "method"), list(itertools.product(["resnet", "lstm", "transformer"], METHODS)))
def test_families_between_processes(workshop, reference_of, processes, family, method) -> None:
    run = of_family(workshop, family).run(*METHODS[method], "pipeline.partition=[1,2,1]", inline=False)
    same(run, reference_of(family, method))


@pytest.mark.few
@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("vgg", "seed=4"),
        ("lstm", "model.components.1.hand_on_state=false"),
        ("transformer", "model.components.1.dropout=0.0"),
    ],
    ids=["seed", "states", "dropout"],
)
def test_what_is_tested_is_there(workshop, reference_of, family, change) -> None:
    """Another seed, no states handed on, no dropout: each gives other weights."""
    run = of_family(workshop, family).run(*METHODS["associated_learning"], change)
    assert run.error is None
    assert run.summary.weights_sha256 != reference_of(family, "associated_learning").summary.weights_sha256
