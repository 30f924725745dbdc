"""An imported model trains as blocks do: in the same bits however it is cut, and as plain torch does."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch
import yaml
from torch.nn import functional

from alray.cli.main import execute
from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.core.errors import SpecError
from alray.data.batches import TrainBatches
from alray.inference.export import export_route
from alray.inference.exported import ExportedRoute
from alray.inference.network import TrainedNetwork
from alray.runtime.workload import Workload

from ..pairwise import first_alone
from .conftest import Workshop
from .test_same_bits import same

pytestmark = pytest.mark.ray

OWN = """\
import torch
from torch import nn
from torch.nn import functional


def convolution(width):
    return nn.Conv2d(width, width, 3, padding=1)


class Net(nn.Module):
    '''A skip over two layers, a loop, and dropout as a function.'''

    def __init__(self, width, classes):
        super().__init__()
        self.stem = nn.Conv2d(2, width, 3, padding=1)
        self.pairs = nn.ModuleList(nn.ModuleList([convolution(width), convolution(width)]) for _ in range(3))
        self.norm = nn.BatchNorm2d(width)
        self.last = nn.Linear(width, classes)

    def forward(self, x):
        x = self.norm(self.stem(x)).relu_()
        for first, second in self.pairs:
            x = x + second(functional.relu(first(x)))
            x = functional.dropout(x, 0.2, self.training)
        return self.last(x.mean((2, 3)))
"""
BENT = """\
import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    '''From its first layer to its last two or three tensors are needed later.'''

    def __init__(self, classes):
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, padding=1)
        self.deeper = nn.Conv2d(4, 8, 3, padding=1)
        self.middle = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.Conv2d(16, 4, 3, padding=1)
        self.top = nn.Conv2d(10, 4, 3, padding=1)
        self.last = nn.Linear(4, classes)

    def forward(self, x):
        fine = self.down(x).relu_()
        coarse = self.deeper(functional.max_pool2d(fine, 2)).relu_()
        middle = functional.dropout(self.middle(coarse), 0.2, self.training)
        coarse = functional.interpolate(self.up(torch.cat([middle, coarse], 1)).relu_(), scale_factor=2)
        return self.last(functional.relu(self.top(torch.cat([coarse, fine, x], 1))).mean((2, 3)))
"""
SPEC = """\
name: imported
seed: 3
data: {source: synthetic, shape: [2, 8, 8], classes: 4, samples: 90, batch_size: 16, validation_fraction: 0.2}
model: {from: "python:own_nets.Net", with: {width: 6, classes: 4}, components: 4}
optimizer: {kind: adam, lr: 3.0e-3}
run: {epochs: 2, evaluate_every: 3 steps, checkpoint: {every: 4 steps, keep: 50}}
"""
METHODS = ("associated_learning", "decoupled_greedy")
RESNET = """\
name: resnet
data: {source: synthetic, shape: [3, 32, 32], classes: 10, samples: 64, batch_size: 8, validation_fraction: 0.25}
model: {from: "torchvision:resnet18", with: {num_classes: 10}, components: 4}
method: backpropagation
optimizer: {kind: sgd, lr: 0.01}
pipeline:
  {schedule: 1f1b, stages: 2, micro_batches: 2, micro_batch_norm: accept,
   costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost, *cost]}
run: {steps: 3, evaluate_every: null, train: never}
"""


@pytest.fixture
def imported(workshop: Workshop) -> Workshop:
    (workshop.folder / "own_nets.py").write_text(OWN)
    workshop.spec.write_text(SPEC)
    return workshop


@pytest.mark.full
@pytest.mark.parametrize("method", first_alone(METHODS))
def test_the_same_bits_on_more_stages_and_resumed(imported: Workshop, method: str) -> None:
    one = imported.run(f"method={method}", name="one")
    for number, partition in enumerate(([2, 2], [1, 2, 1])):
        same(imported.run(f"method={method}", f"pipeline.partition={partition}", name=f"{number}"), one)
    imported.run(f"method={method}", "run.epochs=1", "pipeline.stages=2", name="half")
    same(imported.resume("run.epochs=2", "pipeline.partition=[1,3]", name="half"), one)
    page = str(imported.folder / "both.html")
    assert execute(["compare", str(imported.folder / "one"), str(imported.folder / "0"), "--output", page]) == 0


FROZEN = "model.freeze=[stem, norm, pairs.0]"


@pytest.mark.full
@pytest.mark.parametrize("method", first_alone(["backpropagation", *METHODS, "supervised_contrastive"]))
def test_frozen_parts_keep_their_weights_on_any_stages(imported: Workshop, method: str) -> None:
    one = imported.run(f"method={method}", FROZEN, name="one")
    trained = TrainedNetwork(imported.folder / "one", allow_code=True).components
    start = Workload.open(load_spec(imported.spec).spec, UserCode(imported.folder)).network
    for index, component in enumerate(trained):
        before, after = start.component(index, "cpu").weights(), component.weights()
        for name, value in after.items():
            is_frozen = name.startswith(("f.stem.", "f.norm.", "f.pairs.0."))
            assert not name.startswith("f.") or torch.equal(value, before[name]) == is_frozen
    schedule = ("pipeline.schedule=naive",) if method == "backpropagation" else ()
    same(imported.run(f"method={method}", FROZEN, *schedule, "pipeline.partition=[1,3]", name="two"), one)
    imported.run(f"method={method}", FROZEN, "run.epochs=1", name="half")
    same(imported.resume("run.epochs=2", *schedule, "pipeline.partition=[2,2]", name="half"), one)


@pytest.mark.full  # a pipeline below has stages on Ray, the test above parts that are frozen
@pytest.mark.parametrize("schedule", ["1f1b", "zero_bubble"])
def test_a_pipeline_with_a_frozen_stage_on_ray(imported: Workshop, local_ray: None, schedule: str) -> None:
    overrides = ("method=backpropagation", FROZEN, f"pipeline.schedule={schedule}", "pipeline.partition=[2,2]",
                 "pipeline.micro_batches=4", "pipeline.micro_batch_norm=accept")  # fmt: skip
    inline = imported.run(*overrides, name="inline")
    same(imported.run(*overrides, inline=False, name="ray"), inline)


@pytest.mark.full
def test_frozen_parts_with_replicas(imported: Workshop) -> None:
    overrides = ("method=decoupled_greedy", FROZEN, "replicas.count=2")
    one = imported.run(*overrides, name="one")
    same(imported.run(*overrides, "pipeline.stages=2", name="two"), one)


FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")


def part_of_fashion_mnist(folder: Path) -> str:
    """The first pictures of the Debian package in a folder, as an override of a spec."""
    if not FASHION_MNIST.is_dir():
        pytest.skip("the Debian package dataset-fashion-mnist is not installed")
    folder.mkdir()
    for name, count in (("train", 96), ("t10k", 32)):
        for kind, of_one in (("images-idx3", 28 * 28), ("labels-idx1", 1)):
            file = f"{name}-{kind}-ubyte.gz"
            whole = gzip.decompress((FASHION_MNIST / file).read_bytes())
            head = 4 * (1 + whole[3])  # a magic number, whose last byte counts the sizes that follow
            part = whole[:4] + count.to_bytes(4, "big") + whole[8 : head + count * of_one]
            (folder / file).write_bytes(gzip.compress(part))
    return (
        f"data={{source: torchvision, dataset: FashionMNIST, root: {folder}, image_size: 32, channels: 3, "
        "validation_fraction: 0.25, batch_size: 8}"
    )


@pytest.mark.full
@pytest.mark.parametrize("data", ["noise", "Fashion-MNIST"])
def test_a_pipeline_of_torchvisions_resnet_is_plain_torch_and_goes_back(
    workshop: Workshop, one_thread: None, data: str
) -> None:
    from torchvision.models import resnet18

    overrides = [part_of_fashion_mnist(workshop.folder / "data")] if data == "Fashion-MNIST" else []
    workshop.spec.write_text(RESNET)
    workshop.run(*overrides)
    spec = load_spec(workshop.spec, overrides).spec
    workload = Workload.open(spec, UserCode(workshop.folder))
    network, data = workload.network, workload.data
    names = [component.f.body.state_dict() for component in (network.component(index, "cpu") for index in range(4))]
    plain = resnet18(num_classes=10)
    head = network.component(3, "cpu").turn
    assert head is not None
    plain.load_state_dict({name: value for each in (*names, head.state_dict()) for name, value in each.items()})
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.01)
    with TrainBatches(data, seed=spec.seed, start_step=0, end_step=3, workers=0) as batches:
        given = [(batch.inputs(torch.device("cpu"), torch.float32)["s"], batch.labels) for batch in batches]
    for images, classes in given:
        optimizer.zero_grad()
        for samples, labels in zip(images.chunk(2), classes.chunk(2), strict=True):
            (functional.cross_entropy(plain(samples), labels) / 2).backward()
        optimizer.step()
    trained = TrainedNetwork(workshop.folder / "run", allow_code=False)
    export_route(trained, None, "state_dict", workshop.folder / "resnet.pt")
    export_route(trained, None, "safetensors", workshop.folder / "resnet.safetensors")
    again = resnet18(num_classes=10)
    again.load_state_dict(torch.load(workshop.folder / "resnet.pt", weights_only=True))
    for ours, theirs in zip(again.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    samples = torch.randn(5, 3, 32, 32)
    route = ExportedRoute(Path(workshop.folder / "resnet.safetensors"), allow_code=False).route
    assert torch.equal(again.eval()(samples), route(samples))


PIPELINES = {
    "1f1b": "pipeline.partition=[2,3]",
    "gpipe": "pipeline.partition=[1,2,2]",
    "zero_bubble": "pipeline.partition=[2,3]",
    "interleaved_1f1b": "pipeline.partition=[1,1,1,2]",
    "naive": "pipeline.partition=[3,2]",
}


def bend(imported: Workshop) -> None:
    (imported.folder / "own_nets.py").write_text(BENT)
    imported.spec.write_text(SPEC.replace("width: 6, ", ""))


@pytest.mark.full
@pytest.mark.parametrize("schedule", first_alone(["1f1b", *(each for each in PIPELINES if each != "1f1b")]))
def test_a_pipeline_cut_where_several_tensors_are_needed(imported: Workshop, local_ray: None, schedule: str) -> None:
    bend(imported)
    keys = ["method=backpropagation", "model.components=5", f"pipeline.schedule={schedule}", PIPELINES[schedule]]
    keys += [] if schedule == "naive" else ["pipeline.micro_batches=4"]
    one = imported.run(*keys, name="one")
    same(imported.run(*keys, inline=False, name="ray"), one)
    imported.run(*keys, "run.epochs=1", name="half")
    same(imported.resume("run.epochs=2", name="half"), one)
    trained = TrainedNetwork(imported.folder / "ray", allow_code=True)
    route = export_route(trained, None, "safetensors", imported.folder / "route.safetensors")
    samples = torch.randn(3, 2, 8, 8)
    exported = ExportedRoute(Path(route.file), allow_code=True)
    assert torch.equal(exported.route(samples), trained.route(5)(samples))


def test_local_losses_are_not_cut_where_several_tensors_are_needed(imported: Workshop) -> None:
    bend(imported)
    with pytest.raises(SpecError, match="at most 3 components"):
        imported.run("method=decoupled_greedy", "model.components=5")


SCALED = """\
import torch
from torch import nn


class Net(nn.Module):
    '''Indexes a buffer in its forward, and draws numbers in a submodule.'''

    def __init__(self, classes, counts=False):
        super().__init__()
        self.register_buffer("k", torch.rand(2))
        self.counts, self.calls = counts, 0
        self.stem, self.noise = nn.Conv2d(2, 6, 3, padding=1), Noise()
        self.middle, self.last = nn.Conv2d(6, 6, 3, padding=1), nn.Linear(6, classes)

    def forward(self, x):
        if self.counts:
            self.calls += 1
        x = self.noise(torch.relu(self.stem(x * self.k[:, None, None])))
        return self.last(torch.relu(self.middle(x)).mean((2, 3)))


class Noise(nn.Module):
    def forward(self, x):
        return x + 0.1 * torch.randn(6, 1, 1)
"""


@pytest.mark.full
@pytest.mark.parametrize("method", first_alone(["backpropagation", *METHODS]))
def test_buffers_come_from_the_weights_and_from_checkpoints(imported: Workshop, method: str) -> None:
    (imported.folder / "own_nets.py").write_text(SCALED)
    imported.spec.write_text(SPEC.replace("width: 6, ", "").replace("components: 4", "components: auto"))
    network = Workload.open(load_spec(imported.spec).spec, UserCode(imported.folder)).network
    parts = [network.component(index, "cpu").f.body for index in range(len(network))]
    whole = network.whole_model(parts)
    assert whole is not None
    torch.save(whole.state_dict() | {"k": torch.tensor([4.0, -3.0])}, imported.folder / "given.pt")
    given = ("model.weights=given.pt", f"method={method}")
    one = imported.run(*given, name="one")
    imported.run(*given, "run.steps=3", name="half")  # where the other one evaluates too
    same(imported.resume("run.steps=8", name="half"), one)
    trained = TrainedNetwork(imported.folder / "one", allow_code=True)
    again = trained.components[0].f.body
    assert torch.equal(again.state_dict()["k"], torch.tensor([4.0, -3.0]))
    assert not [name for name, _ in again.named_buffers() if name != "k"]
    assert execute(["evaluate", str(imported.folder / "one"), "--json"]) == 0


def test_validate_and_run_prove_that_the_parts_are_the_whole(
    imported: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    (imported.folder / "own_nets.py").write_text(SCALED)
    imported.spec.write_text(SPEC.replace("width: 6, ", "counts: true, ").replace("components: 4", "components: 2"))
    for command in ("validate", "run"):
        assert execute([command, str(imported.spec), *(["--deep"] if command == "validate" else ["--inline"])]) == 2
        said = capsys.readouterr().err
        assert "own_nets.py:15: " in said and "keeps `calls` from one call" in said and "Traceback" not in said


POOLED = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(6 if each else 2, 6, 3, padding=1) for each in range(3))
        self.last = nn.Linear(6, classes)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.last(x.mean((2, 3)))
"""


@pytest.mark.few
@pytest.mark.parametrize(("method", "output"), [("decoupled_greedy", (6, 8, 8)), ("backpropagation", (6,))])
def test_readouts_get_maps_that_the_model_has_not_pooled(
    imported: Workshop, method: str, output: tuple[int, ...]
) -> None:
    (imported.folder / "own_nets.py").write_text(POOLED)
    imported.spec.write_text(SPEC.replace("width: 6, ", "").replace("components: 4", "components: auto"))
    imported.run(f"method={method}")
    trained = TrainedNetwork(imported.folder / "run", allow_code=True)
    assert tuple(trained.workload.network.encoders[-1].output) == output
    route = export_route(trained, None, "safetensors", imported.folder / "route.safetensors")
    samples = torch.randn(3, 2, 8, 8)
    exported = ExportedRoute(Path(route.file), allow_code=True)
    assert torch.equal(exported.route(samples), trained.route(len(trained.components))(samples))


@pytest.mark.full
def test_a_model_of_transformers_on_ray_and_after_a_resume(workshop: Workshop, local_ray: None) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'alray[transformers]'")
    from benchmarks.huggingface import spec_of

    spec = spec_of("GPT2LMHeadModel", workshop.folder)
    workshop.spec.write_text(yaml.safe_dump({**spec, "method": "decoupled_greedy"}))
    keys = ("run.steps=6", "run.checkpoint={every: 3 steps}")
    one = workshop.run(*keys, name="one")
    same(workshop.run(*keys, "pipeline.stages=2", inline=False, name="ray"), one)
    workshop.run("run.steps=3", "run.checkpoint={every: 3 steps}", name="half")
    same(workshop.resume("run.steps=6", "pipeline.partition=[1,3]", name="half"), one)
