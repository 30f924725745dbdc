"""A GPT that somebody wrote is cut by itself, trains by every method of tokens, writes text, and goes back."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.core.errors import RunError, SpecError
from alray.data.batches import TrainBatches
from alray.inference.export import export_route
from alray.inference.exported import ExportedRoute
from alray.inference.generation import generate
from alray.inference.network import TrainedNetwork
from alray.runtime.workload import Workload

from ..pairwise import first_alone
from .conftest import Workshop
from .test_language_models import METHODS, workshop_in
from .test_same_bits import same

CODE = """\
import torch
from torch import nn
from torch.nn import functional


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        n, t, d = x.size()
        query, key, value = self.mix(self.ln_1(x)).split(d, dim=2)
        heads = (each.view(n, t, self.heads, d // self.heads).transpose(1, 2) for each in (query, key, value))
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).contiguous().view(n, t, d))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, tokens=256, width=8, tied=False):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(tokens, width), nn.Embedding(8, width)
        self.layers = nn.ModuleList(Layer(width, 2) for _ in range(4))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, tokens, bias=False)
        if tied:
            self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(0, tokens.size(1), device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.ln_f(x))
"""
MODEL = 'model={from: "python:own_gpt.Gpt", components: 4}'


@pytest.fixture
def own(tmp_path: Path) -> Workshop:
    workshop = workshop_in(tmp_path)
    (tmp_path / "own_gpt.py").write_text(CODE)
    text = workshop.spec.read_text()
    begin, end = text.index("model:"), text.index("method:")
    workshop.spec.write_text(text[:begin] + MODEL.replace("=", ": ", 1) + "\n" + text[end:])
    return workshop


@pytest.mark.full
@pytest.mark.parametrize("method", first_alone(["dgl", "al", "solo"]))
def test_the_same_bits_on_any_stages_and_resumed(own: Workshop, method: str) -> None:
    one = own.run(*METHODS[method], name="one")
    same(own.run(*METHODS[method], "pipeline.stages=4", name="four"), one)
    own.run(*METHODS[method], "pipeline.stages=4", "run.steps=7", name="stopped")
    same(own.resume("run.steps=20", "pipeline.stages=2", name="stopped"), one)


@pytest.mark.full
def test_a_pipeline_of_backpropagation_is_plain_torch_and_goes_back(own: Workshop, one_thread: None) -> None:
    own.run("pipeline.schedule=1f1b", "pipeline.stages=2", "pipeline.micro_batches=2")
    spec = load_spec(own.spec).spec
    workload = Workload.open(spec, UserCode(own.folder))
    gpt = runpy.run_path(str(own.folder / "own_gpt.py"))["Gpt"]
    plain = gpt()
    components = [workload.network.component(index, "cpu") for index in range(4)]
    head = components[-1].turn
    assert head is not None
    parts = [*(component.f.body for component in components), head]
    plain.load_state_dict({name: value for part in parts for name, value in part.state_dict().items()})
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.2, momentum=0.9)
    with TrainBatches(workload.data, seed=spec.seed, start_step=0, end_step=20, workers=0) as batches:
        for batch in batches:
            optimizer.zero_grad()
            for samples, labels in zip(batch.samples.chunk(2), batch.labels.chunk(2), strict=True):
                (functional.cross_entropy(plain(samples).flatten(0, 1), labels.flatten()) / 2).backward()
            optimizer.step()
    trained = TrainedNetwork(own.folder / "run", allow_code=True)
    export_route(trained, None, "state_dict", own.folder / "gpt.pt")
    again = gpt()
    again.load_state_dict(torch.load(own.folder / "gpt.pt", weights_only=True))
    for ours, theirs in zip(again.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    export_route(trained, None, "safetensors", own.folder / "gpt.safetensors")
    asked = {"tokens": 12, "temperature": 0.9, "depth": None, "seed": 3}
    route = ExportedRoute(own.folder / "gpt.safetensors", allow_code=True)
    assert generate(route, "def ", **asked).text == generate(trained, "def ", **asked).text


@pytest.mark.full
def test_a_layer_that_sees_later_positions_is_refused(own: Workshop) -> None:
    code = own.folder / "own_gpt.py"
    code.write_text(code.read_text().replace("is_causal=True", "is_causal=False"))
    with pytest.raises(RunError, match="sees later positions"):
        own.run("pipeline.costs=null")


@pytest.mark.few
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            (f"{MODEL[:-1]}, with: {{tied: true}}}}",),
            r"share the parameter `lm_head\.weight`; set model\.untie=true",
        ),
        ((f"{MODEL[:-1]}, with: {{tokens: 300}}}}",), r"gives \(8, 300\) for a sample, and the data has 256 tokens"),
        (("task=classification", "data={source: docstrings, batch_size: 6}"), "documents of different lengths"),
    ],
)
def test_what_does_not_fit_is_refused(own: Workshop, overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        own.run(*overrides)
