"""A model that other people wrote trains by backpropagation as in a plain loop, on any number of stages."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

import alray
from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.data.batches import TrainBatches
from alray.inference.network import TrainedNetwork
from alray.models.imported.calls import scores_of
from alray.models.imported.part import Part, on_meta
from alray.runtime.workload import Workload

from ..pairwise import first_alone

SKIPS = """\
import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    '''A small U-Net: what is fine and what is coarse is needed again, two and four layers later.'''

    def __init__(self, classes):
        super().__init__()
        self.down, self.deeper = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.middle, self.up = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(16, 4, 3, padding=1)
        self.top, self.last = nn.Conv2d(8, 4, 3, padding=1), nn.Linear(4, classes)

    def forward(self, x):
        fine = self.down(x).relu()
        coarse = self.deeper(functional.max_pool2d(fine, 2)).relu()
        up = self.up(torch.cat([self.middle(coarse), coarse], 1)).relu()
        return self.last(self.top(torch.cat([functional.interpolate(up, scale_factor=2), fine], 1)).mean((2, 3)))
"""
HEADED = """\
from torch import nn
from transformers import BertConfig, BertModel


class Net(nn.Module):
    def __init__(self, classes, **keys):
        super().__init__()
        self.bert = BertModel(BertConfig(**keys), add_pooling_layer=False)
        self.inner, self.last = nn.Linear(16, 16), nn.Linear(16, classes)

    def forward(self, ids, mask):
        h = self.bert(ids, attention_mask=mask.long()).last_hidden_state
        h = (h * mask.unsqueeze(2)).sum(1) / mask.sum(1, keepdim=True)
        return self.last(self.inner(h).tanh())
"""
LAYERS = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
TEXTS = {**LAYERS, "vocab_size": 64, "pad_token_id": 0}
UNDISTURBED = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MODELS: dict[str, dict[str, Any]] = {
    "python:headed.Net": {**TEXTS, **UNDISTURBED, "classes": 3},
    "python:skips.Net": {"classes": 3},
    "transformers:LlamaForSequenceClassification": {**TEXTS, "num_labels": 3, "num_key_value_heads": 1},
}
"""One with skips over several stages, and two that get documents of different lengths: a class of transformers, and one
within a module of the user's."""
COST = {"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}
STEPS = 3


def spec_of(source: str, folder: Path, method: str) -> dict[str, Any]:
    (folder / "skips.py").write_text(SKIPS)
    (folder / "headed.py").write_text(HEADED)
    words = ("red", "green", "blue")
    rows = [f'{number % 3},"{" ".join([words[number % 3]] * (number % 7 + 1))}"' for number in range(40)]
    (folder / "train.csv").write_text("\n".join(rows))
    read = {"vocabulary_size": 20, "max_tokens": 12}
    texts = {"source": "text_csv", "train": str(folder / "train.csv"), "test_fraction": 0.2, "text": read}
    images = {"source": "synthetic", "shape": [2, 8, 8], "classes": 3, "samples": 40}
    return {
        "name": "plain",
        "seed": 3,
        "data": {**(images if "skips" in source else texts), "batch_size": 5, "validation_fraction": 0.2},
        "model": {"from": source, "with": MODELS[source], "components": 3},
        "method": method,
        "optimizer": {"kind": "sgd", "lr": 0.1},
        "pipeline": {"costs": [COST] * 3},
        "run": {"steps": STEPS, "evaluate_every": None, "checkpoint": None, "precision": "float64"},
    }


def on_stages(spec: dict[str, Any], folder: Path, stages: int) -> alray.Run:
    pipeline = {**spec["pipeline"], "stages": stages}
    if stages > 1 and spec["method"] == "backpropagation":
        pipeline["schedule"] = "naive"  # in micro-batches, gradients are added in another order
    return alray.run({**spec, "pipeline": pipeline}, inline=True, output=folder / f"on-{stages}", progress=False)


@pytest.mark.parametrize("source", first_alone(MODELS))
def test_backpropagation_is_a_plain_loop_on_any_stages(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    if source != "python:skips.Net" and find_spec("transformers") is None:
        pytest.skip("transformers is not installed: pip install 'alray[transformers]'")
    monkeypatch.chdir(tmp_path)
    spec = spec_of(source, tmp_path, "backpropagation")
    expected = {}
    for stages in (1, 2, 3):
        if stages < 3:  # in a pipeline documents are padded to one length
            pipeline = {"schedule": "naive", "stages": 2} if stages == 2 else {}
            expected = in_torch({**spec, "pipeline": {**spec["pipeline"], **pipeline}}, tmp_path)
        run = on_stages(spec, tmp_path, stages)
        trained = TrainedNetwork(Path(run.folder), allow_code=True).components
        parts = [part for each in trained for part in each.modules() if isinstance(part, Part)]
        found = {name: value for part in parts for name, value in part.state_dict().items()}
        for name, value in expected.items():
            assert torch.equal(found[name], value), (stages, name)


def in_torch(spec: dict[str, Any], folder: Path) -> dict[str, torch.Tensor]:
    """The weights that a plain loop trains on the mini-batches of this spec."""
    workload = Workload.open(load_spec(spec).spec, UserCode(folder))
    components = [workload.network.component(index, "cpu") for index in range(3)]
    parts = [part for each in components for part in each.modules() if isinstance(part, Part)]
    plain = workload.network.whole_model(parts)
    assert plain is not None
    plain = plain.double().train()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    with TrainBatches(workload.data, seed=3, start_step=0, end_step=STEPS, workers=0) as batches:
        for batch in batches:
            given = batch.inputs(torch.device("cpu"), torch.float64)
            optimizer.zero_grad()
            functional.cross_entropy(scores_of(plain, given["s"], given.get("mask")), batch.labels).backward()
            optimizer.step()
    return {name: value.detach() for name, value in plain.named_parameters()}


def test_shapes_are_found_of_documents_without_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    """With their mask: without it the class calls other functions."""
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'alray[transformers]'")
    monkeypatch.chdir(tmp_path)
    spec = spec_of("transformers:LlamaForSequenceClassification", tmp_path, "backpropagation")
    network = Workload.open(load_spec(spec).spec, UserCode(tmp_path)).network
    passing = {"s": torch.zeros(4, 7, dtype=torch.int64, device="meta")}
    passing["mask"] = torch.ones(4, 7, dtype=torch.bool, device="meta")
    for index in range(3):
        component = on_meta(network.component(index, "cpu"))
        for part in (each for each in component.modules() if isinstance(each, Part)):
            passing = part(passing)
    assert passing["s"].shape == (4, 3)


@pytest.mark.parametrize("source", first_alone(MODELS))
def test_local_losses_end_in_one_hash_on_any_stages(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = spec_of(source, tmp_path, "decoupled_greedy")
    if source == "python:skips.Net":  # elsewhere more than one activation is needed later
        spec |= {"model": {**spec["model"], "components": 2}, "pipeline": {"costs": [COST] * 2}}
    stages = range(1, len(spec["pipeline"]["costs"]) + 1)
    assert len({on_stages(spec, tmp_path, each).summary.weights_sha256 for each in stages}) == 1
