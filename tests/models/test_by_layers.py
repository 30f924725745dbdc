"""Models that are cut by their list of layers: those of transformers, and a user's that cannot be traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from alray.core.errors import SpecError
from alray.models.imported.by_layers import LayeredModel
from alray.models.shape import Shape

TOKENS = Shape((6,), torch.int64, tokens=16)
WORDS = Shape((6,), torch.int64, words=tuple(f"w{number}" for number in range(16)))


def layered(whole: nn.Module, sample: Shape = TOKENS, **keys: Any) -> LayeredModel:
    return LayeredModel(whole, "python:nets.Net", {}, sample, **keys)


class Layer(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        mixed = x if mask is None else x.masked_fill(~mask.unsqueeze(2), 0.0)
        result: torch.Tensor = x + self.dropout(self.linear(mixed.cumsum(1))).tanh()
        return result


class Net(nn.Module):
    """A model of tokens whose `forward` cannot be traced: it chooses by sizes, draws, and gives an object."""

    def __init__(self, *, tied: bool = False, told: bool = False, **changed: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed = nn.Embedding(16, 8)
        self.position = nn.Parameter(torch.randn(6, 8))
        self.blocks = nn.ModuleList(Layer(dropout=0.3) for _ in range(4))
        self.scale = nn.Parameter(torch.randn(8))
        self.head = nn.Linear(8, 16, bias=False)
        self.told = told
        self.calls = 0
        self.changed = changed
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
        x = self.embed(tokens) + self.position[: tokens.shape[1]]
        if x.shape[1] > 1:
            x = nn.functional.dropout(x, 0.3, self.training)
        if "before" in self.changed:
            x = self.changed["before"](self, tokens, x)
        skipped = x
        for block in self.blocks:
            if self.training:
                torch.rand(())  # as OPT does
            x = block(x, mask)
        if "after" in self.changed:
            x = self.changed["after"](self, tokens, x, skipped)
        return type("Output", (), {"logits": self.head(x * self.scale)})()


@pytest.mark.parametrize("sample", [TOKENS, WORDS])
def test_parts_of_a_model_that_cannot_be_traced_are_the_whole(sample: Shape) -> None:
    model = layered(Net(), sample)
    parts = model.cut("auto", None, sample)
    assert [part.until for part in parts] == [f"blocks.{number}" for number in range(4)]
    model.prove(parts, sample)
    model.prove(model.cut("auto", ["blocks.1"], sample), sample)
    chain = [model.part(*part) for part in parts] + [model.classifier(parts)]
    names = [name for part in chain for name in part.state_dict()]
    assert sorted(names) == sorted(model.whole.state_dict())


def test_parts_are_exported_as_a_graph() -> None:
    model = layered(Net())
    parts = model.cut(2, None, TOKENS)
    chain = nn.Sequential(*(model.part(*part) for part in parts), model.classifier(parts)).eval()
    tokens = torch.arange(12).view(2, 6)
    assert torch.equal(torch.export.export(chain, (tokens,)).module()(tokens), chain(tokens))


def test_a_model_with_too_few_vectors_is_told_the_numbers() -> None:
    more = Shape((6,), torch.int64, tokens=1000)
    model = layered(Net(), more)
    with pytest.raises(SpecError, match=r"whole numbers from 0 to 999, .* one of positions needs 6"):
        model.prove(model.cut(2, None, more), more)


class Moved(Net):
    """Has a tensor under a name that its class has."""

    offset: torch.Tensor | None = None

    def __init__(self) -> None:
        super().__init__(before=lambda net, tokens, x: x + net.offset)
        self.offset = torch.ones(8)


class Pooling(Net):
    """Its list of layers has the name of an attribute of parts."""

    def __init__(self) -> None:
        super().__init__()
        self.pooling = self._modules.pop("blocks")

    @property
    def blocks(self) -> Any:
        return self._modules["pooling"]


def test_a_list_of_layers_may_have_the_name_of_an_attribute_of_parts() -> None:
    model = layered(Pooling())
    model.prove(model.cut(2, None, TOKENS), TOKENS)


def test_a_tensor_that_is_a_plain_attribute_comes_along() -> None:
    model = layered(Moved())
    parts = model.cut(2, None, TOKENS)
    model.prove(parts, TOKENS)
    elsewhere = model.part(*parts[0]).to("meta")
    assert elsewhere(torch.zeros(2, *TOKENS, dtype=torch.int64, device="meta")).is_meta


def skips(net: Net, tokens: torch.Tensor, x: torch.Tensor, skipped: torch.Tensor) -> torch.Tensor:
    return x + skipped


def counts(net: Net, tokens: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    net.calls += 1
    return x


def reads(net: Net, tokens: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return x + 1 if tokens.max() > 100 else x


def rarely(net: Net, tokens: torch.Tensor, x: torch.Tensor, skipped: torch.Tensor) -> torch.Tensor:
    """Where the proof's examples do not come: no comparison of numbers would tell."""
    return torch.where(tokens.max() > 100, x + 1, x + torch.zeros_like(tokens).unsqueeze(2))


@pytest.mark.parametrize(
    ("net", "said"),
    [
        (Net(after=rarely), "uses the values of its samples"),
        (Net(after=skips), "scores differ"),
        (Net(before=counts), "keeps `calls`"),
        (Net(before=reads), "values of its samples"),
        (Net(tied=True), "one parameter"),
    ],
)  # fmt: skip
def test_a_cut_that_would_compute_otherwise_is_refused(net: Net, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        model = layered(net)
        model.prove(model.cut(2, None, TOKENS), TOKENS)


def test_tied_weights_get_a_copy_each_where_that_is_asked_for() -> None:
    model = layered(Net(tied=True), untie=True)
    one, other = model.whole.get_parameter("embed.weight"), model.whole.get_parameter("head.weight")
    assert one is not other and torch.equal(one, other)
    model.prove(model.cut(2, None, TOKENS), TOKENS)
