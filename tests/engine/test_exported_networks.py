"""What leaves is what was evaluated: of every method and format, in the model's class and plain torch too."""

from __future__ import annotations

import runpy
from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

from alray.cli.main import execute
from alray.data.batches import EvaluationBatches
from alray.inference.export import export_route
from alray.inference.exported import ExportedRoute
from alray.inference.network import TrainedNetwork
from benchmarks.plain_readouts import PlainModel

from ..pairwise import first_alone
from .conftest import Workshop
from .test_language_models import METHODS as OF_TOKENS
from .test_language_models import workshop_in as texts_in
from .test_own_gpt import CODE as GPT
from .test_own_gpt import MODEL as OWN_GPT

RESNET = """\
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.skip = nn.Conv2d(width, out, 1, stride)

    def forward(self, x):
        return functional.relu(self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x))))) + self.skip(x))


class ResNet(nn.Module):
    def __init__(self, outputs=4, width=8):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.layer1, self.layer2 = Block(width, width, 1), Block(width, 2 * width, 2)
        self.fc = nn.Linear(2 * width, outputs)

    def forward(self, x):
        x = functional.relu(self.bn(self.conv(x)))
        return self.fc(self.layer2(self.layer1(x)).mean((2, 3)))
"""
PICTURES = """
name: pictures
seed: 3
data: {source: synthetic, shape: [3, 8, 8], classes: 4, samples: 150, batch_size: 16}
model: {from: "python:own_resnet.ResNet"}
optimizer: {kind: adam, lr: 1e-2}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost]}
run: {steps: 12, evaluate_every: null}
"""
OWN = 'model={from: "python:own_resnet.ResNet", components: 3}'
SETTING = {"num_classes": 4, "width_mult": 0.25, "inverted_residual_setting": [[1, 16, 1, 1], [2, 24, 1, 2]]}
LIBRARY = f'model={{from: "torchvision:mobilenet_v2", with: {SETTING}, components: 3}}'
BLOCKS = "model={components: [{block: vgg, channels: [8]}, {block: vgg, channels: [8]}, {block: mlp, widths: [8]}]}"
METHODS = {
    "dgl": "{kind: decoupled_greedy, head: {pool: 1}}",
    "al": "{kind: associated_learning, label_dim: 6}",
    "ff": "{kind: forward_forward}",
    "bp": "{kind: backpropagation}",
    "scpl": "{kind: supervised_contrastive, projection_dim: 6, head: {pool: 1}}",
    "mono": "{kind: mono_forward}",
    "predsim": "{kind: local_error_signals, head: {pool: 1}}",
    "channels": "{kind: channel_goodness}",
    "information": "{kind: decoupled_information, projection_dim: 6}",
    "bp, own readout": "{kind: backpropagation, head: {pool: 2, hidden: 6}}",
    "dgl, hidden": "{kind: decoupled_greedy, head: {pool: 3, hidden: 6, activation: tanh}}",
    "al, hidden": "{kind: associated_learning, label_dim: 6, bridge: {pool: null, hidden: 5}, label_activation: none}",
    "mono, last": "{kind: mono_forward, prediction: last}",
    "ff, activities": "{kind: forward_forward, prediction: activities}",
}
"""Each method that trains an imported model, then the same ones with other keys."""
OF_BLOCKS = {"noprop": "{kind: noprop, hidden: 6}", "auglocal": "{kind: auglocal, depth: 1}"}
CLASS_ALONE = {"bp", "dgl", "scpl", "predsim"}
"""Whose deepest route the class with its weights alone is: a linear layer on one value of each map."""
FROZEN = (f"{OWN[:-1]}, freeze: [conv, bn, layer1.bn1]}}",)
MORE = {"frozen": FROZEN, "bf16": (OWN, "run.precision=bf16"), "multi_label": (OWN, "task={kind: multi_label}")}
MLP = """\
from torch import nn


class Mlp(nn.Module):
    '''The second layer has two names in it.'''

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU())
        self.again = self.layers[2]
        self.last = nn.Linear(9, 2)

    def forward(self, x):
        return self.last(self.layers(x))
"""
TABLE = """
name: units
data: {source: table, train: train.csv, test: train.csv, label_columns: [height, slope], batch_size: 16}
task: {kind: regression}
model: {from: "python:own_mlp.Mlp", components: 2}
optimizer: {kind: adam, lr: 0.01}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost]}
run: {epochs: 2}
"""


def pictures_in(folder: Path) -> Workshop:
    workshop = Workshop(folder)
    workshop.spec.write_text(PICTURES)
    (folder / "own_resnet.py").write_text(RESNET)
    return workshop


def windows_in(folder: Path, model: str = OWN_GPT) -> Workshop:
    workshop = texts_in(folder)
    (folder / "own_gpt.py").write_text(GPT)
    text = workshop.spec.read_text()
    begin, end = text.index("model:"), text.index("method:")
    workshop.spec.write_text(text[:begin] + model.replace("=", ": ", 1) + "\n" + text[end:])
    return workshop


def trained(workshop: Workshop, *overrides: str) -> TrainedNetwork:
    workshop.run("run.evaluate_every=null", *overrides)
    return TrainedNetwork(workshop.folder / "run", allow_code=True)


def samples_of(network: TrainedNetwork) -> tuple[torch.Tensor, torch.Tensor]:
    batches = list(EvaluationBatches(network.workload.data, "test"))
    return torch.cat([batch.samples for batch in batches]), torch.cat([batch.labels for batch in batches])


def own_class(workshop: Workshop, name: str) -> nn.Module:
    module: nn.Module = runpy.run_path(str(workshop.folder / f"own_{name.lower()}.py"))[name]()
    return module


def metric_of(kind: str, scores: torch.Tensor, labels: torch.Tensor) -> float:
    """The metric of a task by another library."""
    from sklearn.metrics import average_precision_score, r2_score

    match kind:
        case "classification":
            return float((scores.argmax(1) == labels).double().mean())
        case "next_token":
            return float(functional.cross_entropy(scores.flatten(0, 1), labels.flatten()))
        case "regression":
            return float(r2_score(labels, scores))
        case _:
            return float(average_precision_score(labels, scores))


def require_same(network: TrainedNetwork, folder: Path, plain: PlainModel | None, graphs: tuple[str, ...]) -> None:
    """Every depth of every export gives the metric that `alray evaluate` gives, by the scores of the route."""
    samples, labels = samples_of(network)
    data, kind = network.workload.data, network.workload.spec.task.kind
    in_units = data.in_units
    in_full = network.workload.spec.run.precision == "float32"

    def agrees(scores: torch.Tensor, depth: int, test: float) -> None:
        with torch.no_grad():
            wanted = in_units(network.route(depth)(samples.clone()))
        near = (1e-4 if in_full else 3e-2) * float(wanted.abs().max())
        torch.testing.assert_close(scores, wanted.to(scores.dtype), rtol=0, atol=near)
        assert metric_of(kind, scores, in_units(labels)) == pytest.approx(test, abs=1e-5 if in_full else 0.07)

    for each in network.evaluate(["test"]):
        depth, test = each.depth, each.test
        assert test is not None
        if plain is not None:
            agrees(plain.scores(samples, depth), depth, test)
        file = Path(export_route(network, depth, "safetensors", folder / "route.safetensors").file)
        with torch.no_grad():
            agrees(in_units(ExportedRoute(file, allow_code=True).route(samples.clone())), depth, test)
        if "torch_export" in graphs:
            file = Path(export_route(network, depth, "torch_export", folder / "route.pt2").file)
            agrees(torch.export.load(file).module()(samples.clone()).detach(), depth, test)
        if "onnx" in graphs:
            file = Path(export_route(network, depth, "onnx", folder / "route.onnx").file)
            session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
            agrees(torch.from_numpy(session.run(None, {"samples": samples.numpy()})[0]), depth, test)


def require_its_class(network: TrainedNetwork, workshop: Workshop, model: nn.Module, *, alone: bool) -> PlainModel:
    """The state dict in the model's class: alone it is the deepest route, or it is not and the export says so."""
    file = workshop.folder / "route.pt"
    exported = export_route(network, None, "state_dict", file)
    plain = PlainModel(model, file, by_position=network.workload.data.sample_shape.tokens is not None)
    samples, _ = samples_of(network)
    with torch.no_grad():
        scores, route = model(samples.clone()), network.route(network.depths[-1])(samples.clone())
    near = torch.allclose(scores, route, rtol=0, atol=3e-2 * float(route.abs().max()))
    assert (exported.class_alone, near, exported.untrained == ()) == (alone, alone, alone)
    return plain


def own_picture_class(tmp_path: Path, method: str, *overrides: str) -> tuple[TrainedNetwork, PlainModel]:
    workshop = pictures_in(tmp_path)
    network = trained(workshop, *(overrides or (OWN,)), f"method={METHODS[method]}")
    alone = method in CLASS_ALONE
    return network, require_its_class(network, workshop, own_class(workshop, "ResNet"), alone=alone)


@pytest.mark.few
@pytest.mark.parametrize("method", first_alone(METHODS, first=9))
def test_a_class_of_ones_own(tmp_path: Path, one_thread: None, method: str) -> None:
    network, plain = own_picture_class(tmp_path, method)
    require_same(network, tmp_path, plain, ())


@pytest.mark.few
@pytest.mark.parametrize("method", first_alone(METHODS, first=2))
def test_a_model_of_torchvision(tmp_path: Path, one_thread: None, method: str) -> None:
    from torchvision.models import mobilenet_v2

    workshop = pictures_in(tmp_path)
    network = trained(workshop, LIBRARY, f"method={METHODS[method]}")
    plain = require_its_class(network, workshop, mobilenet_v2(**SETTING), alone=method in CLASS_ALONE)
    require_same(network, tmp_path, plain, ())


@pytest.mark.few
@pytest.mark.parametrize("method", first_alone(["dgl", "solo", "al", "bp"]))
def test_a_gpt_of_ones_own(tmp_path: Path, one_thread: None, method: str) -> None:
    """Its last layer and that of a readout have one shape, and are not the same."""
    workshop = windows_in(tmp_path)
    keys = "method={kind: solo, copy_every: 3, heads: 2}" if method == "solo" else OF_TOKENS[method][0]
    network = trained(workshop, keys)
    plain = require_its_class(network, workshop, own_class(workshop, "Gpt"), alone=method == "bp")
    require_same(network, tmp_path, plain, ())


@pytest.mark.few
@pytest.mark.parametrize("what", MORE)
def test_other_runs(tmp_path: Path, one_thread: None, what: str) -> None:
    network, plain = own_picture_class(tmp_path, "dgl", *MORE[what])
    require_same(network, tmp_path, plain, ())


@pytest.mark.few
@pytest.mark.parametrize("method", ["decoupled_greedy", "backpropagation"])
def test_a_regression_comes_with_its_units_and_a_weight_with_all_its_names(
    tmp_path: Path, one_thread: None, method: str
) -> None:
    workshop = Workshop(tmp_path)
    workshop.spec.write_text(TABLE)
    (tmp_path / "own_mlp.py").write_text(MLP)
    samples = torch.randn(120, 4)
    targets = torch.stack([150 + 40 * samples[:, 0], 0.002 * samples[:, 1] - 1], 1)
    rows = torch.cat([samples, targets], 1).tolist()
    text = "\n".join(["a,b,c,d,height,slope", *(",".join(map(str, row)) for row in rows)])
    (tmp_path / "train.csv").write_text(text)
    network = trained(workshop, f"method={method}")
    plain = require_its_class(network, workshop, own_class(workshop, "Mlp"), alone=True)
    assert plain.added["alray.targets.mean"].tolist() == pytest.approx(targets.mean(0).tolist(), rel=0.2)
    require_same(network, tmp_path, plain, ("torch_export",))


def test_exported_units_keep_the_spread_of_targets(tmp_path: Path, one_thread: None) -> None:
    """float32 knows times in seconds to two minutes."""
    workshop = Workshop(tmp_path)
    workshop.spec.write_text(TABLE)
    (tmp_path / "own_mlp.py").write_text(MLP)
    samples = torch.randn(120, 4, dtype=torch.float64)
    targets = torch.stack([1.7e9 + 40 * samples[:, 0], samples[:, 1]], 1)
    rows = torch.cat([samples, targets], 1).tolist()
    text = "\n".join(["a,b,c,d,height,slope", *(",".join(map(str, row)) for row in rows)])
    (tmp_path / "train.csv").write_text(text)
    network = trained(workshop, "method=backpropagation")
    weights = torch.load(export_route(network, None, "state_dict", tmp_path / "route.pt").file, weights_only=True)
    for name in ("mean", "std"):
        assert weights[f"alray.targets.{name}"].tolist() == list(getattr(network.form.targets, name))


@pytest.mark.few
@pytest.mark.parametrize("method", first_alone([*OF_BLOCKS, *METHODS], first=2))
def test_a_network_of_blocks(tmp_path: Path, one_thread: None, method: str) -> None:
    network = trained(pictures_in(tmp_path), BLOCKS, f"method={(METHODS | OF_BLOCKS)[method]}")
    require_same(network, tmp_path, None, ("torch_export",))


@pytest.mark.full
def test_an_exported_file_is_one_of_initial_weights(tmp_path: Path, one_thread: None) -> None:
    """The readouts in it are those of another method."""
    _, plain = own_picture_class(tmp_path, "al")
    keys = ("method=backpropagation", "optimizer.lr=1e-12", "run.steps=1")
    pictures_in(tmp_path).run(f"{OWN[:-1]}, weights: route.pt}}", *keys, name="on")
    again = TrainedNetwork(tmp_path / "on", allow_code=True)
    export_route(again, None, "state_dict", tmp_path / "again.pt")
    weights = torch.load(tmp_path / "again.pt", weights_only=True)
    torch.testing.assert_close(weights["layer2.conv1.weight"], plain.model.layer2.conv1.weight.detach())


@pytest.mark.full
def test_the_command_says_what_the_class_is(
    tmp_path: Path, one_thread: None, capsys: pytest.CaptureFixture[str]
) -> None:
    for method, says in (("al", "no trained classifier"), ("dgl", "predicts as the route")):
        folder = tmp_path / method
        folder.mkdir()
        trained(pictures_in(folder), OWN, f"method={METHODS[method]}")
        capsys.readouterr()
        assert execute(["export", str(folder / "run"), "--format", "state_dict"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert says in said and "alray.readout.2.*, which reads output of layer1" in said
    refused = execute(["export", str(folder / "run"), "--format", "state_dict", "--depth", "1"])
    assert refused == 2 and "the whole model" in capsys.readouterr().err


ALL = [
    *(("pictures", OWN, f"method={method}") for method in METHODS.values()),
    *(("pictures", BLOCKS, f"method={method}") for method in (METHODS | OF_BLOCKS).values()),
    *(("windows", OWN_GPT, keys[0]) for keys in OF_TOKENS.values()),
]


@pytest.mark.full
@pytest.mark.parametrize(("data", "model", "method"), ALL)
def test_every_graph(tmp_path: Path, one_thread: None, data: str, model: str, method: str) -> None:
    network = trained({"pictures": pictures_in, "windows": windows_in}[data](tmp_path), model, method)
    require_same(network, tmp_path, None, ("torch_export", "onnx"))
