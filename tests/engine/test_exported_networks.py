"""What leaves is what was evaluated: of every method and format, in the model's own class and in plain torch too."""

from __future__ import annotations

import importlib
import runpy
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

from alray.data.batches import EvaluationBatches
from alray.inference.export import Exported, export_route
from alray.inference.exported import ExportedRoute
from alray.inference.network import TrainedNetwork
from alray.tasks.task import Prediction

from ..plain_readouts import PlainModel
from .conftest import Workshop
from .test_language_models import METHODS as OF_TOKENS
from .test_language_models import workshop_in
from .test_own_gpt import CODE as GPT

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
LIBRARY = 'model={from: "torchvision:shufflenet_v2_x0_5", with: {num_classes: 4}, components: 3}'
BLOCKS = "model={components: [{block: vgg, channels: [8]}, {block: vgg, channels: [8], pool: true}, {block: mlp, width: 8}]}"
OF_MODELS = {
    "bp": "{kind: backpropagation}",
    "bp, own readout": "{kind: backpropagation, head: {pool: 2, hidden: 6}}",
    "bp, every depth": "{kind: backpropagation, deep_supervision: 0.5}",
    "dgl": "{kind: decoupled_greedy}",
    "dgl, hidden": "{kind: decoupled_greedy, head: {pool: 3, hidden: 6, activation: tanh}}",
    "al": "{kind: associated_learning, label_dim: 6}",
    "al, hidden": "{kind: associated_learning, label_dim: 6, bridge: {pool: null, hidden: 5}, decoder_activation: relu}",
    "scpl": "{kind: supervised_contrastive, projection_dim: 6}",
    "mono": "{kind: mono_forward}",
    "mono, last": "{kind: mono_forward, prediction: last, pool: 1}",
    "predsim": "{kind: local_error_signals}",
    "channels": "{kind: channel_goodness}",
    "information": "{kind: decoupled_information, projection_dim: 6}",
    "ff": "{kind: forward_forward}",
    "ff, activities": "{kind: forward_forward, prediction: activities}",
}
OF_BLOCKS = {"noprop": "{kind: noprop, hidden: 6}", "auglocal": "{kind: auglocal, depth: 1}"}


def pictures_in(folder: Path) -> Workshop:
    workshop = Workshop(folder)
    workshop.spec.write_text(textwrap.dedent(PICTURES))
    (folder / "own_resnet.py").write_text(RESNET)
    return workshop


def trained(workshop: Workshop, *overrides: str) -> TrainedNetwork:
    workshop.run(*overrides)
    return TrainedNetwork(workshop.folder / "run", allow_code=True)


def test_set(network: TrainedNetwork) -> tuple[torch.Tensor, torch.Tensor]:
    batches = list(EvaluationBatches(network.workload.data, "test"))
    return torch.cat([batch.samples for batch in batches]), torch.cat([batch.labels for batch in batches])


def measured(network: TrainedNetwork) -> dict[int, float]:
    """What `alray evaluate` measures on the test set, by depth."""
    return {each.depth: each.test for each in network.evaluate(["test"]) if each.test is not None}


def accuracy(scores: torch.Tensor, labels: torch.Tensor) -> float:
    return float((scores.argmax(1) == labels).double().mean())


def nats(scores: torch.Tensor, labels: torch.Tensor) -> float:
    return float(functional.cross_entropy(scores.flatten(0, 1), labels.flatten()))
