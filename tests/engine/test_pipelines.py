"""Pipelines of backpropagation train what one device trains; they fail and go on as every other run does."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from alray.core.errors import PlanError
from alray.core.run_folder.records import StageRecord, read
from alray.inference.network import TrainedNetwork
from alray.inference.requests import evaluate
from alray.orchestrate import Finished
from alray.runtime.channel.in_process import Queue
from alray.runtime.channel.message import Message, packed_bytes
from alray.runtime.stage.ports import WITHIN

from .conftest import Watching, Workshop
from .process_graph import in_processes
from .test_replicas import distance, weights

pytestmark = pytest.mark.long

SPEC = """
name: pipeline
seed: 3
data: {source: synthetic, shape: [2, 8, 8], classes: 4, samples: 150, batch_size: 16, validation_fraction: 0.2}
model:
  components:
    - {block: "python:plain.Conv", width: 4}
    - {block: "python:plain.Conv", width: 6}
    - {block: "python:plain.Flat", width: 24}
    - {block: "python:plain.Linear", width: 12}
method: {kind: backpropagation, label_smoothing: 0.1}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost, *cost]}
run: {steps: 20, evaluate_every: 10 steps, checkpoint: {every: 5 steps, keep: 50}}
"""
BLOCKS = '''
"""Blocks without statistics over samples, so that micro-batches leave the mathematics alone."""

import torch
from torch import nn


class Conv(nn.Module):
    def __init__(self, input, width):
        super().__init__()
        self.conv = nn.Conv2d(input[0], width, 3, padding=1)

    def forward(self, s, mask=None):
        return torch.tanh(self.conv(s))


class Flat(nn.Module):
    def __init__(self, input, width):
        super().__init__()
        self.linear = nn.Linear(input.elements, width)

    def forward(self, s, mask=None):
        return torch.tanh(self.linear(s.flatten(1)))


class Linear(nn.Module):
    def __init__(self, input, width, dropout=0.0):
        super().__init__()
        self.linear, self.dropout = nn.Linear(input[0], width), nn.Dropout(dropout)

    def forward(self, s, mask=None):
        return self.dropout(torch.tanh(self.linear(s)))


class Normed(nn.Sequential):
    def __init__(self, input, width):
        super().__init__(nn.Linear(input[0], width), nn.BatchNorm1d(width))


class Growing(nn.Module):
    """Another shape than on the meta device."""

    def __init__(self, input):
        super().__init__()

    def forward(self, s, mask=None):
        return s if s.device.type == "meta" else torch.cat([s, s], 1)


class Stopped(Linear):
    """Lets no gradient through."""

    def forward(self, s, mask=None):
        return super().forward(s.detach())


class Same(nn.Module):
    """Gives back what it is given."""

    def __init__(self, input):
        super().__init__()

    def forward(self, s, mask=None):
        return s
'''
OPTIMIZERS = {
    "sgd": (["optimizer={kind: sgd, lr: 0.1, momentum: 0.9}"], 1e-5),
    "adam": (["optimizer={kind: adam, lr: 0.01}", "run.precision=float64"], 1e-10),
}


SCHEDULES = ("naive", "gpipe", "1f1b", "interleaved_1f1b", "zero_bubble")
LAYOUTS = [*[(name, 2) for name in SCHEDULES], ("gpipe", 4), ("1f1b", 4)]
SOME = {("1f1b", 4, "sgd"), ("interleaved_1f1b", 2, "adam"), ("zero_bubble", 2, "adam")}
"""Between processes. In one process every schedule is tried."""


def schedule(name: str, stages: int, *more: str) -> tuple[str, ...]:
    return (f"pipeline.schedule={name}", f"pipeline.stages={stages}", *more)


def workshop_in(folder: Path) -> Workshop:
    workshop = Workshop(folder, SPEC)
    (folder / "plain.py").write_text(BLOCKS)
    return workshop


@pytest.fixture
def pipeline(tmp_path: Path) -> Workshop:
    return workshop_in(tmp_path)


@pytest.fixture(scope="module")
def one_device(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finished]:
    """For each optimizer, what every pipeline must come to."""
    workshop = workshop_in(tmp_path_factory.mktemp("one_device"))
    return {
        optimizer: workshop.run(*overrides, "pipeline.schedule=single", name=optimizer)
        for optimizer, (overrides, _) in OPTIMIZERS.items()
    }


MORE = (*OPTIMIZERS["sgd"][0], *schedule("zero_bubble", 2), "run.steps=100")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory, server: str) -> Finished:
    """A longer run of a pipeline."""
    with in_processes(server):
        return workshop_in(tmp_path_factory.mktemp("unbroken")).run(*MORE, inline=False)


@pytest.mark.parametrize(
    ("name", "stages", "optimizer"),
    [
        pytest.param(name, stages, optimizer, marks=[] if (name, stages, optimizer) in SOME else pytest.mark.full)
        for optimizer in OPTIMIZERS
        for name, stages in LAYOUTS
    ],
)
def test_equals_one_device(pipeline, one_device, processes, name, stages, optimizer) -> None:
    overrides, tolerance = OPTIMIZERS[optimizer]
    reference = one_device[optimizer]
    run = pipeline.run(*overrides, *schedule(name, stages), inline=False)
    assert distance(run, reference) <= tolerance
    assert run.summary.stages == stages
    assert run.summary.accuracy == reference.summary.accuracy
    steps = [record for record in read(Path(run.summary.run_dir) / "records.jsonl") if record.kind == "step"]
    assert [record.step for record in steps] == list(range(1, 21))
    assert all(list(record.losses) == [3] and list(record.losses[3]) == ["cross_entropy"] for record in steps)


@pytest.mark.full
def test_other_layouts(pipeline, one_device, processes) -> None:
    """Several virtual stages with split backwards; components without parameters, at the bottom and between others."""
    overrides, tolerance = OPTIMIZERS["adam"]
    run = pipeline.run(*overrides, *schedule("zero_bubble", 2, "pipeline.virtual_stages=2"), inline=False)
    assert distance(run, one_device["adam"]) <= tolerance
    same = ["model.components.0={block: 'python:plain.Same'}", "model.components.2={block: 'python:plain.Same'}"]
    same += ["model.components.3={block: 'python:plain.Flat', width: 9}", *overrides]
    reference = pipeline.run(*same, "pipeline.schedule=single", name="single-same")
    for name in ("zero_bubble", "1f1b"):
        run = pipeline.run(*same, *schedule(name, 4, "pipeline.micro_batches=4"), inline=False, name=f"same-{name}")
        assert distance(run, reference) <= tolerance


@pytest.mark.full
def test_draws_and_accuracies(pipeline, processes) -> None:
    """Random numbers belong to a micro-batch, whatever the schedule; accuracies are those of the checkpoint."""
    overrides = ["optimizer={kind: sgd, lr: 0.01}", "model.components.3.dropout=0.4", "pipeline.micro_batches=4"]
    reference = pipeline.run(*overrides, *schedule("gpipe", 2), name="reference")
    for name in ("1f1b", "interleaved_1f1b"):
        run = pipeline.run(*overrides, *schedule(name, 2), inline=False, name=name)
        assert distance(run, reference) <= 1e-6
        evaluated = evaluate(TrainedNetwork(Path(run.summary.run_dir), allow_code=False))
        step, (accuracy,) = evaluated.weights.step, evaluated.scores
        assert step == 20
        assert (accuracy.validation, accuracy.test) == (run.summary.accuracy.validation, run.summary.accuracy.test)
        assert 0.2 < run.summary.accuracy.validation < 1.0, "an accuracy that says something"


DOCUMENTS = """
class Documents:
    classes = ("even", "odd")

    def open(self, split):
        return [(" ".join(["word", "other"] * (1 + i % 3)), i % 2) for i in range(40)] if split == "train" else None
"""
COST = "{forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}"
TEXT = """
name: text
data: {source: "python:documents.Documents", batch_size: 8, validation_fraction: 0.0, text: {max_tokens: 6}}
model: {components: [{block: embedding, dim: 8}, {block: linear, width: 4}, {block: linear, width: 4}]}
method: backpropagation
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost], partition: [1, 2]}
run: {steps: 5, evaluate_every: null}
"""


@pytest.mark.full
def test_gradients_of_text_take_what_the_plan_says(pipeline, processes) -> None:
    """The mask of the words goes up only."""
    (pipeline.folder / "documents.py").write_text(DOCUMENTS)
    pipeline.spec.write_text(TEXT)
    watching = Watching()
    sent = []
    for steps in (5, 10):  # the evaluation at the end sends as much in both
        made = (f"run.steps={steps}", "pipeline.schedule=1f1b")
        run = pipeline.run(*made, inline=False, watching=watching, name=str(steps))
        assert run.error is None
        sent.append(run.summary.bytes_sent["1->0"])
    planned = {edge.edge: edge.bytes_per_step for edge in watching.plans[0].edges}
    assert planned["1->0"] == 8 * 6 * 8 * 4 and planned["0->1"] == planned["1->0"] + 8 * 6 + 8 * 8
    assert sent[1] - sent[0] == 5 * 4 * packed_bytes([planned["1->0"] // 4])


@pytest.mark.few
@pytest.mark.parametrize("name", ["1f1b", "zero_bubble"])
def test_states_travel_with_their_gradients(pipeline, name) -> None:
    """A recurrent component gives the next one three tensors, and takes three gradients."""
    (pipeline.folder / "documents.py").write_text(DOCUMENTS)
    pipeline.spec.write_text(TEXT)
    lstm = "{block: lstm, hidden: 5, hand_on_state: true}"
    made = [f"model.components=[{{block: embedding, dim: 8}}, {lstm}, {lstm}, {{block: linear, width: 4}}]"]
    made += [f"pipeline.costs=[{', '.join([COST] * 4)}]", "pipeline.micro_batches=4", "run.precision=float64"]
    runs = [
        pipeline.run(*made, f"pipeline.schedule={name}", f"pipeline.partition={cut}", name=str(number))
        for number, cut in enumerate(([1, 3], [2, 2], [1, 1, 2]) if name == "1f1b" else ([2, 2],))
    ]
    alone = pipeline.run(*made[:-1], "pipeline.schedule=1f1b", "pipeline.partition=[4]", made[-1], name="alone")
    assert alone.error is None
    assert {run.summary.weights_sha256 for run in runs} == {alone.summary.weights_sha256}


@pytest.mark.few
@pytest.mark.parametrize("between", ["queues", pytest.param("processes", marks=pytest.mark.full)])
@pytest.mark.parametrize("name", ["1f1b", "zero_bubble"])
def test_what_has_no_gradient_stays_on_every_partition(pipeline, name, between, request) -> None:
    """Zeros in place of no gradient would let weights decay, and averages of gradients go on."""
    if between == "processes":
        request.getfixturevalue(between)
    made = ["model.components.3={block: 'python:plain.Stopped', width: 12}", "pipeline.micro_batches=4"]
    made += ["optimizer={kind: adamw, lr: 0.01, weight_decay: 0.1}", "run.steps=4"]
    alone = pipeline.run(*made, "pipeline.schedule=1f1b", "pipeline.partition=[4]", name="alone")
    cut = (f"pipeline.schedule={name}", "pipeline.partition=[3, 1]")
    run = pipeline.run(*made, *cut, inline=between == "queues")
    assert run.error is None, run.error
    assert run.summary.weights_sha256 == alone.summary.weights_sha256


POSITIONS = """
import torch
from torch import nn


class Placed(nn.Module):
    \"\"\"Learned numbers of the shape of the micro-batch: their gradient may be a view of the one that came.\"\"\"

    def __init__(self, input, samples):
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(samples, *input))

    def forward(self, s, mask=None):
        positions = self.positions if len(s) == len(self.positions) else self.positions[:1]
        return (s + positions).reshape(s.shape)
"""


@pytest.mark.full
def test_a_gradient_does_not_lie_in_the_buffer_of_a_message(pipeline, processes) -> None:
    (pipeline.folder / "placed.py").write_text(POSITIONS)
    made = ["optimizer={kind: sgd, lr: 0.1}", "model.components.1={block: 'python:placed.Placed', samples: 4}"]
    made += ["run.evaluate_every=null", "data.validation_fraction=0.0", "run.train=never", "run.test=end"]
    made += ["run.steps=20"]
    alone = pipeline.run(*made, *schedule("1f1b", 1, "pipeline.micro_batches=4"), name="alone")
    for name in ("gpipe", "1f1b"):
        run = pipeline.run(*made, *schedule(name, 2, "pipeline.micro_batches=4"), inline=False, name=name)
        assert run.error is None, run.error
        assert run.summary.weights_sha256 == alone.summary.weights_sha256


@pytest.fixture
def overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages in one process lie in buffers that are overwritten when they are released, as between processes."""
    buffers: dict[int, list[torch.Tensor]] = {}
    send, release = Queue.send, Queue.release

    def send_copy(sender: Queue, message: Message) -> Generator[None, None, None]:
        if sender.edge != WITHIN:
            message = replace(message, tensors={name: value.clone() for name, value in message.tensors.items()})
            buffers[id(message)] = [*message.tensors.values()]
        yield from send(sender, message)

    def release_and_overwrite(receiver: Queue, message: Message) -> None:
        for value in buffers.pop(id(message), ()):
            value.detach().copy_(~value if value.dtype == torch.bool else torch.full_like(value, -1))
        release(receiver, message)

    monkeypatch.setattr(Queue, "send", send_copy)
    monkeypatch.setattr(Queue, "release", release_and_overwrite)


@pytest.mark.usefixtures("overwritten")
@pytest.mark.parametrize("name", ["1f1b", "zb_v", "dualpipe_v"])
def test_nothing_that_a_stage_keeps_lies_in_a_released_buffer(pipeline, name) -> None:
    """On the turn of a V the mask of an evaluation goes from one virtual stage of a device to the next one."""
    (pipeline.folder / "documents.py").write_text(DOCUMENTS)
    block = "{block: transformer, heads: 2, feedforward: 8}"
    pipeline.spec.write_text(TEXT)
    made = (
        f"model.components=[{{block: embedding, dim: 8}}, {block}, {block}, {block}]",
        f"pipeline={{costs: [{COST}, {COST}, {COST}, {COST}]}}",
        "optimizer={kind: sgd, lr: 0.1}",
        "pipeline.micro_batches=4",
    )
    alone = pipeline.run(*made, *schedule("1f1b", 1), name="alone")
    run = pipeline.run(*made, *schedule(name, 2), name=name)
    assert run.error is None, run.error
    assert run.summary.weights_sha256 == alone.summary.weights_sha256
    assert run.summary.scores == alone.summary.scores


@pytest.mark.full
def test_resumed_on_other_stages(pipeline, processes) -> None:
    """A run on two stages has four micro-batches, and keeps them."""
    overrides = [*OPTIMIZERS["sgd"][0], "model.components.3.dropout=0.4"]
    reference = pipeline.run(*overrides, *schedule("1f1b", 2), name="reference")
    pipeline.run(*overrides, *schedule("1f1b", 2), "run.steps=7", inline=False)
    run = pipeline.resume("run.steps=14", *schedule("zero_bubble", 2, "pipeline.virtual_stages=2"), inline=False)
    assert len(run.summary.partition) == 4
    last = ("run.steps=20", *schedule("gpipe", 4, "pipeline.virtual_stages=null"))
    run = pipeline.resume(*last, inline=False)
    assert len(run.summary.partition) == 4
    assert distance(run, reference) == 0.0, "the same micro-batches, their gradients added up in the same order"


@pytest.mark.full
def test_a_block_that_gives_another_shape_is_named(pipeline, processes) -> None:
    # Costs are given, or this block would go wrong when it is measured.
    grows = "model.components.1={block: 'python:plain.Growing'}"
    run = pipeline.run(grows, *schedule("gpipe", 2), inline=False, name="grows")
    assert "block `python:plain.Growing` gave `s` of [4, 8, 8, 8] float32" in str(run.error)


@pytest.mark.full
def test_time_is_accounted_for(unbroken) -> None:
    """Of the whole time of each stage: computing, sending, receiving, idle; and spans by micro-batch."""
    folder = Path(unbroken.summary.run_dir)
    records = [record for record in read(folder / "records.jsonl") if isinstance(record, StageRecord)]
    for stage in range(2):
        own = [record for record in records if record.stage == stage and record.steps]
        assert all(record.forward_s > 0 and record.backward_s > 0 and record.update_s > 0 for record in own)
        assert sum(record.receive_wait_s for record in own) > 0
        kinds = {span.action[:2] for record in own for span in record.spans}
        assert {f"{stage}F", f"{stage}I", f"{stage}G", f"{stage}U"} <= kinds
        assert f"{stage}F0.3" in {span.action for record in own for span in record.spans}
    assert 0.0 < unbroken.summary.bubble < 1.0


@pytest.mark.full
def test_norms_of_own_blocks(pipeline) -> None:
    normed = "model.components.3={block: 'python:plain.Normed', width: 12}"
    with pytest.raises(PlanError, match=r"block `python:plain.Normed` has batch normalisation") as caught:
        pipeline.run(normed, *schedule("gpipe", 2))
    assert caught.value.problems[0].key == "model.components[3]"
    assert weights(pipeline.run(normed, *schedule("naive", 2), name="naive")).isfinite().all()
    accepted = pipeline.run(normed, *schedule("gpipe", 2, "pipeline.micro_batch_norm=accept"), name="accepted")
    assert weights(accepted).isfinite().all()
