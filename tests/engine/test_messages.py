"""Compressed messages: the same bits on every partition and engine, and after a resume."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import nn

from alray.config.loading.load import load_spec
from alray.core.errors import SpecError
from alray.inference.export import Format, export_route
from alray.inference.exported import ExportedRoute
from alray.inference.network import TrainedNetwork, whole_batch
from alray.inference.plain_network import plain_network
from alray.models.route import route_of
from alray.orchestrate import Finished

from .conftest import Watching, Workshop
from .process_graph import in_processes
from .test_same_bits import same

SPEC = """
name: messages
seed: 3
data: {source: synthetic, shape: [2, 6, 6], classes: 4, samples: 80, batch_size: 16, validation_fraction: 0.2}
model:
  components:
    - {block: vgg, channels: [4]}
    - {block: vgg, channels: [5], pool: true}
    - {block: vgg, channels: [6]}
    - {block: mlp, widths: [9]}
method: {kind: decoupled_greedy}
pipeline:
  costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost, *cost]
  micro_batch_norm: accept
run: {steps: 6, evaluate_every: 3 steps, checkpoint: {every: 2 steps, keep: 50}}
"""
COMPRESSIONS = {
    "bf16": "{compression: bf16}",
    "int8": "{compression: int8}",
    "int4": "{compression: {kind: int4, scale: token}}",
    "top_k": "{compression: {kind: top_k, fraction: 0.2}}",
}
GRAPHS: tuple[tuple[Format, str], ...] = (("safetensors", ".safetensors"), ("torch_export", ".pt2"), ("onnx", ".onnx"))
COST = "{forward_s: %s, backward_s: 1e-3, update_s: 1e-3}"
SLOW_LAST = f"pipeline.costs=[{', '.join(COST % seconds for seconds in ('1e-3', '1e-3', '1e-3', '9e-3'))}]"
BACKPROPAGATION = ("method={kind: backpropagation}", "pipeline.micro_batches=4")


@pytest.fixture
def messages(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, SPEC)


def require_same_network(run_dir: Path, run: Finished) -> None:
    """The network of a run compresses as its evaluation did."""
    trained = TrainedNetwork(run_dir, allow_code=False)
    scores = trained.evaluate(["train", "validation", "test"])
    assert [each.test for each in scores] == [each.test for each in run.summary.scores_per_depth]
    batch = whole_batch(trained.workload.data)
    with torch.no_grad():
        for depth, found in zip(trained.depths, trained.scores(batch, 0), strict=True):
            assert torch.equal(plain_network(trained, depth)(batch.samples), found)


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_local_losses_end_in_the_same_bits(messages: Workshop, kind: str) -> None:
    compressed = f"pipeline.messages={COMPRESSIONS[kind]}"
    alone = messages.run(compressed, name="alone")
    assert alone.summary.weights_sha256 != messages.run(name="plain").summary.weights_sha256
    require_same_network(messages.folder / "alone", alone)
    two = messages.run(compressed, "pipeline.partition=[2, 2]", "run.steps=3", name="two")
    resumed = messages.resume("run.steps=6", "pipeline.partition=[1, 2, 1]", "pipeline.stages=3", name="two")
    same(resumed, alone)
    assert two.summary.weights_sha256 != alone.summary.weights_sha256


@pytest.mark.few
@pytest.mark.parametrize("kind", list(reversed(COMPRESSIONS)))
def test_pipelines_end_in_the_same_bits(messages: Workshop, kind: str) -> None:
    compressed = f"pipeline.messages={COMPRESSIONS[kind]}"
    alone = messages.run(compressed, *BACKPROPAGATION, "pipeline.schedule=1f1b", "pipeline.stages=1", name="alone")
    two = messages.run(compressed, *BACKPROPAGATION, "pipeline.partition=[2, 2]", name="two")
    same(two, alone)
    require_same_network(messages.folder / "alone", alone)
    messages.run(compressed, *BACKPROPAGATION, "pipeline.partition=[1, 1, 2]", "run.steps=3", name="three")
    same(messages.resume("run.steps=6", name="three"), alone)


def test_edges_carry_the_packed_bytes(messages: Workshop, server: str) -> None:
    """Between processes: over shared memory, and over gloo as between nodes. What would be sent without is recorded."""
    compressed = "pipeline.messages={compression: int4}"
    alone, cut, watching = messages.run(compressed, name="alone"), "pipeline.partition=[2, 2]", Watching()
    with in_processes(server):
        two = messages.run(compressed, cut, inline=False, name="two", watching=watching)
        plain = messages.run(cut, inline=False, name="plain").summary
    same(two, alone)
    assert plain.uncompressed_bytes is None and two.summary.uncompressed_bytes == plain.bytes_sent
    assert two.summary.bytes_sent["0->1"] < plain.bytes_sent["0->1"] / 2  # headers and labels are not compressed
    (edge,) = watching.plans[0].edges
    labels, values = 16 * 8, 16 * 5 * 3 * 3
    assert edge.uncompressed_bytes_per_step == values * 4 + labels
    assert edge.bytes_per_step == 16 * (4 + 1 + 23) + labels  # 45 values of half a byte, a scale and a zero point
    with in_processes(server, ["one", "other"]):
        same(messages.run(compressed, cut, inline=False, name="nodes"), alone)


@pytest.mark.full
@pytest.mark.parametrize("kind", list(reversed(COMPRESSIONS)))
def test_an_exported_network_compresses_as_its_evaluation_did(messages: Workshop, kind: str) -> None:
    """In each format."""
    messages.run(f"pipeline.messages={COMPRESSIONS[kind]}", "pipeline.partition=[2, 2]", "run.steps=2", name="run")
    trained = TrainedNetwork(messages.folder / "run", allow_code=False)
    samples = whole_batch(trained.workload.data).samples
    with torch.no_grad():
        wanted = trained.route(4)(samples)
        without = route_of([trained.components[index] for index in range(4)], 4)
        without.boundaries = nn.ModuleList()
        assert not torch.equal(without(samples), wanted)
    near = partial(torch.testing.assert_close, expected=wanted, rtol=0, atol=1e-4)
    files = {each: Path(export_route(trained, 4, each, messages.folder / f"{each}{end}").file) for each, end in GRAPHS}
    with torch.no_grad():
        near(ExportedRoute(files["safetensors"], allow_code=False).route(samples))
        near(torch.export.load(files["torch_export"]).module()(samples))
    session = onnxruntime.InferenceSession(files["onnx"], providers=["CPUExecutionProvider"])
    near(torch.from_numpy(session.run(None, {"samples": samples.numpy()})[0]))


@pytest.mark.parametrize(
    ("key", "overrides"),
    [
        ("pipeline.messages.compression", ["pipeline.messages.compression=powersgd"]),
        ("replicas.compression", ["replicas={count: 2, compression: int8}"]),
        ("pipeline.messages.gradients", ["pipeline.messages={compression: int8, gradients: bf16}"]),
        (
            "replicas.engine",
            ["pipeline.messages.compression=int8", "method={kind: backpropagation}", "replicas.engine=ray_train"],
        ),
    ],
)
def test_what_cannot_be_compressed_is_refused(messages: Workshop, key: str, overrides: list[str]) -> None:
    with pytest.raises(SpecError) as refused:
        load_spec(messages.spec, overrides)
    assert [problem.key for problem in refused.value.problems] == [key]
