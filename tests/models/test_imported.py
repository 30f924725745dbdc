"""Imported models: where they are cut, and that the chain of their parts is the whole model, bit for bit."""

from __future__ import annotations

import copy
import pickle
import re
import sys
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from ray import cloudpickle
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from alray.core.errors import SpecError
from alray.models.encoder import PartEnds
from alray.models.imported.given import GivenModel
from alray.models.imported.identity import module_sha256
from alray.models.imported.part import joined
from alray.models.imported.sources import made
from alray.models.readout import Features
from alray.models.shape import Shape
from tests.models.chains import backward, passed

IMAGE = Shape((3, 64, 64))


ROW = Shape((6,))


def given(
    source: str, arguments: dict[str, Any], sample: Shape, load: Callable[[str], Any], freeze: Sequence[str] = ()
) -> GivenModel:
    torch.manual_seed(0)
    whole, _ = made(source, arguments, load, sample=sample)
    return GivenModel(whole, source, arguments, sample, freeze=freeze)


def torchvision(name: str, freeze: Sequence[str] = ()) -> GivenModel:
    return given(f"torchvision:{name}", {"num_classes": 7}, IMAGE, nothing, freeze)


def own(make: Callable[..., nn.Module], sample: Shape = ROW, **arguments: Any) -> GivenModel:
    return given("python:nets.Net", arguments, sample, lambda reference: make)


def nothing(reference: str) -> Any:
    raise AssertionError


def places(parts: Sequence[PartEnds]) -> list[str | None]:
    return [part.until for part in parts]


def require_the_whole(model: GivenModel, parts: Sequence[PartEnds], samples: torch.Tensor) -> None:
    """The chain of these parts and the classifier gives the scores, gradients and buffers of the whole model."""
    chain = [model.part(*part) for part in parts] + [model.classifier(parts)]
    for training in (True, False):
        model.whole.train(training)
        torch.manual_seed(5)  # of dropout
        scores = model.whole(samples)
        for part in chain:
            part.train(training)
        torch.manual_seed(5)
        of_parts, edges = passed(chain, {"s": samples})
        assert torch.equal(scores, of_parts)
        if training:
            model.whole.zero_grad()
            backward(scores, [])
            backward(of_parts, edges)
            gradients = {name: each.grad for part in chain for name, each in part.named_parameters()}
            of_whole = {name: each.grad for name, each in model.whole.named_parameters()}
            assert gradients.keys() == of_whole.keys()
            for name, expected in of_whole.items():
                found = gradients[name]
                assert expected is not None and found is not None and torch.equal(expected, found), name
    together = {name: value for part in chain for name, value in part.state_dict().items()}
    whole = model.whole.state_dict()
    assert together.keys() == whole.keys() and all(torch.equal(whole[name], together[name]) for name in whole)


@pytest.mark.few
@pytest.mark.parametrize(
    ("name", "natural"),
    [
        ("resnet18", ["maxpool", "layer1.0", "layer1", "layer2.0", "layer2", "layer3.0", "layer3", "layer4.0",
                      "avgpool"]),
        ("densenet121", ["features.pool0", "features.denseblock1", "features.transition1", "features.denseblock2",
                         "features.transition2", "features.denseblock3", "features.transition3",
                         "adaptive_avg_pool2d"]),
        ("squeezenet1_1", ["features.2", "features.3", "features.5", "features.6", "features.8", "features.9",
                           "features.10", "features.11", "classifier.0"]),
    ],
)  # fmt: skip
def test_the_parts_of_a_model_of_torchvision_are_the_whole(name: str, natural: list[str], one_thread: None) -> None:
    model = torchvision(name)
    parts = model.cut("auto", None)
    assert places(parts) == natural
    require_the_whole(model, parts, torch.randn(4, *IMAGE))


def test_a_number_of_components_of_even_work_or_named_layers(one_thread: None) -> None:
    model = torchvision("resnet18")
    four = places(model.cut(4, None))
    assert len(four) == 4 and four[-1] == "avgpool" and set(four) <= set(model.cut_points)
    assert places(model.cut("auto", ["layer1", "layer3.0"])) == ["layer1", "layer3.0", "avgpool"]


@pytest.mark.few
@pytest.mark.parametrize(
    ("components", "cut", "key", "said"),
    [
        (100, None, "model.components", "at most 9 components"),
        ("auto", ["layer4.1.nothing"], "model.cut", "did you mean"),
        ("auto", ["layr2"], "model.cut", "layer2"),
        ("auto", ["layer2", "layer1"], "model.cut", "follow each other"),
    ],
)
def test_a_cut_that_is_not_possible_is_refused(
    components: int | str, cut: list[str] | None, key: str, said: str
) -> None:
    with pytest.raises(SpecError) as caught:
        torchvision("resnet18").cut(components, cut)
    (problem,) = caught.value.problems
    assert problem.key == key and said in f"{problem.message} {problem.hint}"


class Skips(nn.Module):
    """A skip over two layers, a loop, dropout as a function, a separate parameter, and another argument."""

    def __init__(self, width: int = 6, classes: int = 5) -> None:
        super().__init__()
        self.first = nn.Linear(12, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.scale = nn.Parameter(torch.ones(width))
        self.last = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor, scaled: bool = True) -> torch.Tensor:
        x = functional.relu(self.first(x.flatten(1)))
        for index in range(0, 4, 2):
            x = x + self.layers[index + 1](self.layers[index](x).tanh())
            x = functional.dropout(x, 0.5, self.training)
        if scaled:
            x = x * self.scale * torch.tensor([0.5]).exp()  # a constant, which no input makes
        result: torch.Tensor = self.last(x)
        return result


def test_a_model_with_skips_and_loops_is_cut_where_one_tensor_is_needed(one_thread: None) -> None:
    model = own(Skips, Shape((3, 2, 2)), width=8)
    parts = model.cut(3, None)
    assert places(parts) == ["relu", "dropout", "mul_1"]
    require_the_whole(model, parts, torch.randn(4, 3, 2, 2))


class Tied(nn.Module):
    """Uses its first layer once more behind the second."""

    def __init__(self) -> None:
        super().__init__()
        self.tied, self.other, self.behind, self.last = (nn.Linear(6, 6) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(self.behind(self.tied(self.other(self.tied(x)).relu()).relu()))
        return result


def test_a_layer_that_is_used_twice_stays_in_one_component(one_thread: None) -> None:
    model = own(Tied)
    parts = model.cut("auto", None)
    assert places(parts) == ["relu_1", "behind"]
    require_the_whole(model, parts, torch.randn(4, 6))
    with pytest.raises(SpecError, match=r"share the parameter `tied\.bias`"):
        model.cut("auto", ["other"])


class ReadsAWeightFirst(nn.Module):
    """Uses a parameter of a layer before it calls the layer, as XCiT's position encoding does."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.last = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(self.second(self.first(x) + self.second.bias).relu())
        return result


def test_a_layer_may_be_called_behind_a_use_of_its_parameter(one_thread: None) -> None:
    model = own(ReadsAWeightFirst)
    require_the_whole(model, model.cut("auto", None), torch.randn(4, 6))


class CountsPositions(nn.Module):
    """Makes a tensor on the device of its weights, which tracing takes for a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.last = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(6, dtype=x.dtype, device=self.first.weight.device)
        result: torch.Tensor = self.last(self.first(x) * positions)
        return result


def test_a_tensor_that_a_model_makes_is_on_the_device_of_its_part(one_thread: None) -> None:
    model = own(CountsPositions)
    parts = model.cut("auto", None)
    require_the_whole(model, parts, torch.randn(4, 6))
    passing = {"s": torch.zeros(4, 6, device="meta")}
    for part in parts:
        passing = model.part(*part).to("meta")(passing)
        assert passing["s"].shape == (4, 6) and passing["s"].is_meta


class Members(nn.Module):
    """Several members take the mini-batch, one after the other or each sample in turn."""

    def __init__(self, *, in_turn: bool) -> None:
        super().__init__()
        self.in_turn = in_turn
        self.first, self.inner, self.outer, self.last = (nn.Linear(6, width) for width in (6, 6, 6, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = x.repeat_interleave(2, 0) if self.in_turn else x.repeat(2, 1)
        x = self.inner(x)
        x = x.unflatten(0, (-1, 2)).mean(1) if self.in_turn else x.unflatten(0, (2, -1)).mean(0)
        result: torch.Tensor = self.last(self.outer(x))
        return result


def test_a_readout_gets_the_rows_of_one_sample(one_thread: None) -> None:
    for in_turn, several in ((True, False), (False, True)):
        model = own(Members, in_turn=in_turn)
        parts = model.cut("auto", ["inner"], several=several)
        require_the_whole(model, parts, torch.randn(4, 6))
    with pytest.raises(SpecError, match="after `inner`: the rows of a sample lie apart"):
        own(Members, in_turn=False).cut("auto", ["inner"])
    assert "inner" not in places(own(Members, in_turn=False).cut(3, None))


class Field(nn.Module):
    """The gradient of what a net makes of its input, as of an energy."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            x = x.requires_grad_()
            energy = self.last(self.inner(self.first(x).tanh()).tanh()).sum()
            return torch.autograd.grad(energy, x, create_graph=True)[0]


def test_what_fails_where_it_is_cut_is_one_component(one_thread: None) -> None:
    model = own(Field)
    parts = model.cut("auto", None, whole=True)
    assert len(parts) == 1 and "`forward` fails there: The differentiated Tensor" in model.reason
    require_the_whole(model, parts, torch.randn(4, 6))


class Branching(nn.Module):
    """Decides by a size."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x) if x.shape[1] > 3 else -self.layer(x)
        return result


def test_a_model_may_choose_by_sizes(one_thread: None) -> None:
    model = own(lambda: nn.Sequential(nn.Linear(6, 6), Branching(), Branching(), nn.Linear(6, 3)))
    parts = model.cut("auto", None)
    assert places(parts) == ["0", "1", "2"]
    require_the_whole(model, parts, torch.randn(4, 6))


class InADictionary(nn.Module):
    """Returns no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"scores": self.layer(x)}


class OfEachOther(InADictionary):
    """Returns the scores of each sample with all of the mini-batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        return h @ h.T


class TimeFirst(InADictionary):
    """Returns samples along the second dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).unflatten(1, (3, 2)).transpose(0, 1)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (InADictionary, "returns a `dict`.*torch.cat"),
        (OfEachOther, "with all others of its mini-batch.*torch.stack"),
        (TimeFirst, r"along dimension 1.*scores.movedim\(1, 0\)"),
    ],
)
def test_a_model_that_gives_no_rows_of_scores_is_refused_at_its_forward(kind: type[nn.Module], said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        own(kind).cut("auto", None, whole=True)
    (problem,) = caught.value.problems
    assert problem.file == __file__
    assert "def forward" in Path(__file__).read_text().splitlines()[problem.line - 1]


class HandsOnTwo(nn.Module):
    """Layers of a flow: what each made of the sample, and a sum beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        beside = x.new_zeros(len(x))
        for layer in self.layers:
            s = layer(x).tanh()
            x, beside = x * s.exp(), beside + s.sum(1)
        return beside - x.square().sum(1)


@pytest.mark.parametrize("components", ["auto", 1, 2])
def test_what_no_readout_can_read_is_refused_with_what_trains_it(components: str | int, one_thread: None) -> None:
    """Not with fewer components, of which none would be right."""
    assert len(own(HandsOnTwo).cut(2, None, several=True, whole=True)) == 2
    with pytest.raises(SpecError, match=r"method=backpropagation trains it as it is; .*that hands on one tensor"):
        own(HandsOnTwo).cut(components, None)


@pytest.mark.parametrize("make", [Branching, lambda: nn.Linear(6, 3), lambda: nn.Sequential(nn.Linear(6, 3))])
def test_a_model_that_cannot_be_cut_is_one_component_by_backpropagation(
    make: Callable[..., nn.Module], one_thread: None
) -> None:
    model = own(make)
    parts = model.cut("auto", None, whole=True)
    assert len(parts) == 1 and model.reason
    require_the_whole(model, parts, torch.randn(4, 6))
    with pytest.raises(SpecError, match="cannot be cut"):
        own(make).cut(2, None, whole=True)
    with pytest.raises(SpecError, match="cannot be cut"):  # a readout of its own reads a component
        own(make).cut("auto", None)


def test_initial_weights_from_a_file(tmp_path: Path) -> None:
    trained, fresh, fewer = (
        own(Skips, Shape((3, 2, 2))),
        own(Skips, Shape((3, 2, 2))),
        own(Skips, Shape((3, 2, 2)), classes=3),
    )
    with torch.no_grad():
        for parameter in trained.whole.parameters():
            parameter.add_(1.0)
    save_file(trained.whole.state_dict(), tmp_path / "weights.safetensors")
    torch.save(trained.whole.state_dict(), tmp_path / "weights.pt")
    for file in ("weights.safetensors", "weights.pt"):
        fresh.start_from(tmp_path / file)
        assert all(map(torch.equal, fresh.whole.parameters(), trained.whole.parameters()))
    drawn = fewer.whole.get_parameter("last.weight").clone()
    fewer.start_from(tmp_path / "weights.pt")
    assert torch.equal(fewer.whole.get_parameter("last.weight"), drawn)
    assert torch.equal(fewer.whole.get_parameter("scale"), trained.whole.get_parameter("scale"))
    assert fresh.notes == [] and "because" in fewer.notes[0]
    without = {name: value for name, value in trained.whole.state_dict().items() if not name.startswith("last.")}
    torch.save(without, tmp_path / "without.pt")
    fresh.start_from(tmp_path / "without.pt")
    assert re.search(r"the last layer `last` begins with weights drawn .* has none for `last.weight`", fresh.notes[0])
    of_training = {"model": trained.whole.state_dict(), "epoch": 3, "optimizer": {"state": {}, "param_groups": []}}
    torch.save(of_training, tmp_path / "training.pt")
    before = {f"module.net.{name}": value for name, value in trained.whole.state_dict().items()}
    torch.save(before | {"loss.weight": torch.ones(3)}, tmp_path / "beside.pt")
    with pytest.raises(SpecError, match=r"does not fit .*Missing key.*scale"):
        own(Skips, Shape((3, 2, 2))).start_from(tmp_path / "beside.pt")
    with pytest.raises(SpecError, match=r"holds no state dict, but `model`, `epoch` and `optimizer`; save"):
        own(Skips, Shape((3, 2, 2))).start_from(tmp_path / "training.pt")
    (tmp_path / "broken.pt").write_bytes(b"not weights")
    for file, said in (("broken.pt", "is not a file of weights"), ("weights.pt", "size mismatch for")):
        with pytest.raises(SpecError, match=said):
            own(Skips, Shape((3, 2, 2)), width=9).start_from(tmp_path / file)


WEIGHTS = "squeezenet1_1-b8a52dc0.pth"
"""The file in torch hub's cache that torchvision reads for `DEFAULT` of squeezenet1_1."""


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """Weights for 1000 classes in the cache of torch hub, in place of those that torchvision downloads."""
    from torchvision import models

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    torch.manual_seed(9)
    weights: dict[str, torch.Tensor] = models.squeezenet1_1().state_dict()
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    torch.save(weights, tmp_path / "hub" / "checkpoints" / WEIGHTS)
    return weights


@pytest.mark.few
@pytest.mark.parametrize("classes", [7, 1000])
def test_named_weights_are_those_of_torchvision_but_for_another_number_of_classes(
    cached: dict[str, torch.Tensor], classes: int
) -> None:
    torch.manual_seed(0)
    model = given("torchvision:squeezenet1_1", {"num_classes": classes}, IMAGE, nothing)
    drawn = {name: value.clone() for name, value in model.whole.state_dict().items()}
    model.start_from("DEFAULT")
    last = "classifier.1."
    for name, value in model.whole.state_dict().items():
        assert torch.equal(value, drawn[name] if classes == 7 and name.startswith(last) else cached[name])
    assert [last.rstrip(".") in note for note in model.notes] == ([True] if classes == 7 else [])


@pytest.mark.parametrize(
    ("source", "name", "said"),
    [
        ("torchvision:squeezenet1_1", "IMAGENET1K_V7", "IMAGENET1K_V1"),
        ("torchvision:squeezenet1_0", "DEFAULT", "checkpoints"),  # is not in the cache, and is not a file's name
        ("python:nets.Net", "DEFAULT", "give a file"),
    ],
)
def test_named_weights_that_are_not_there_are_refused(
    source: str, name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # nothing listens there: no test downloads anything
    model = given(source, {}, IMAGE, lambda reference: Skips)
    with pytest.raises(SpecError) as caught:
        model.start_from(name)
    (problem,) = caught.value.problems
    assert problem.key == "model.weights" and said in f"{problem.message} {problem.hint}"


def test_frozen_parts_stand_still(one_thread: None) -> None:
    from torchvision import models

    frozen = ("conv1", "bn1", "layer1", "layer2.0.bn1.weight")
    torch.manual_seed(0)
    model = torchvision("resnet18", frozen)
    torch.manual_seed(0)
    plain = models.resnet18(num_classes=7).train()
    for name in frozen[:3]:
        plain.get_submodule(name).eval().requires_grad_(requires_grad=False)
    ends = model.cut(3, None)
    parts = [model.part(*part).train() for part in ends] + [model.classifier(ends).train()]
    samples = torch.randn(4, *IMAGE)
    passing = {"s": samples}
    for part in parts:
        passing = part(passing)
    value = passing["s"]
    value.square().sum().backward()
    scores = plain(samples)
    scores.square().sum().backward()
    assert torch.equal(value, scores)
    trained = {name: each for part in parts for name, each in part.named_parameters()}
    for name, parameter in plain.named_parameters():
        gradient = trained[name].grad
        if name == frozen[3] or parameter.grad is None:
            assert gradient is None and name.startswith(frozen)
        else:
            assert torch.equal(gradient, parameter.grad)  # type: ignore[arg-type]
    after = {name: value for part in parts for name, value in part.state_dict().items()}
    assert all(torch.equal(value, after[name]) for name, value in plain.state_dict().items())
    assert after["bn1.num_batches_tracked"] == 0 and after["layer2.0.bn1.num_batches_tracked"] == 1


def test_a_frozen_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        torchvision("resnet18", ["layer_1"])
    (problem,) = caught.value.problems
    assert problem.key == "model.freeze" and "layer1" in str(problem.hint)


@pytest.mark.few
@pytest.mark.parametrize(
    ("name", "last"),
    [("swin_t", {"features.0", "features.1", "features.7"}), ("convnext_tiny", set()), ("resnet18", set())],
)
def test_readouts_average_maps_whose_channels_are_last(name: str, last: set[str]) -> None:
    model = torchvision(name)
    parts = [(part, model.part(*part)) for part in model.cut("auto", None)[:-1]]
    last_channels = [part.until or "" for part, module in parts if module.alray_pooling == "channels_last"]
    ends = {".".join(until.split(".")[:2]) for until in last_channels}
    assert ends >= last and bool(ends) == bool(last)
    (first, module), *_ = parts
    shape = model.gives(str(first.until))["s"]
    features = Features(Shape(shape), 1, module.alray_pooling)
    maps = torch.randn(2, *shape)
    pooled = maps.mean((1, 2)) if last else maps.mean((2, 3))
    torch.testing.assert_close(features(maps), pooled)
    assert features.width == pooled.shape[1]


class Bent(nn.Module):
    """Down and up again as a U-Net: from its first layer to its last two or three tensors are needed later."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 4, 3, padding=1)
        self.deeper = nn.Conv2d(4, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.middle = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.Conv2d(16, 4, 3, padding=1)
        self.top = nn.Conv2d(11, 4, 3, padding=1)
        self.last = nn.Linear(4, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fine = functional.relu(self.down(x))
        coarse = self.norm(self.deeper(functional.max_pool2d(fine, 2))).relu_()
        middle = functional.dropout(self.middle(coarse), 0.2, self.training)
        coarse = self.up(torch.cat([middle, coarse], 1)).relu_()
        fine = torch.cat([functional.interpolate(coarse, scale_factor=2), fine, x], 1)
        return self.last(functional.relu(self.top(fine)).mean((2, 3)))


def test_backpropagation_is_cut_where_several_tensors_are_needed(one_thread: None) -> None:
    model = own(Bent, IMAGE)
    with pytest.raises(SpecError, match=r"at most 3 components .*backpropagation has more"):
        model.cut(5, None)
    require_the_whole(model, model.cut(3, None), torch.randn(4, 3, 64, 64))
    parts = model.cut(5, None, several=True)
    assert len(parts) == 5
    require_the_whole(model, parts, torch.randn(4, 3, 64, 64))
    named = model.cut("auto", ["relu", "relu__1"], several=True)
    maps, fine, coarse = ((3, 64, 64), (4, 64, 64), (4, 32, 32))
    travels = [set(map(tuple, model.gives(str(part.until)).values())) for part in named[:2]]
    assert travels == [{maps, fine}, {maps, fine, coarse}]
    require_the_whole(model, named, torch.randn(4, 3, 64, 64))


class Branches(nn.Module):
    """Wide and deep: after its first layer one activation is needed, and two until the result."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(6, 4)
        self.deep = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.wide(x) + self.deep(x)
        return result


def test_branches_that_meet_at_the_last_layer_are_cut_for_backpropagation(one_thread: None) -> None:
    model = own(Branches)
    parts = model.cut(2, None, several=True, whole=True)
    assert places(parts) == ["deep.1", "deep.3"]
    assert places(model.cut("auto", None, several=True, whole=True)) == ["wide", "deep.1", "deep.3"]
    require_the_whole(model, parts, torch.randn(4, 6))
    with pytest.raises(SpecError, match=r"after `wide` .* more than one activation .*method=backpropagation"):
        model.cut("auto", None)  # readouts would leave out all that is deep


def test_a_plain_tensor_of_a_module_comes_along(one_thread: None) -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
            self.shift = torch.arange(5.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.layers(x - self.shift)
            return scores

    model = own(Shifted, Shape((5,)))
    parts = model.cut(2, None)
    require_the_whole(model, parts, torch.randn(6, 5))


class Shift(nn.Module):
    """Has tensors under names that its class has, and `forward` cannot be traced."""

    table: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.arange(5.0)
        assert self.scale.numel() == 5

    @cached_property
    def scale(self) -> torch.Tensor:
        return torch.full((5,), 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(x.ndim):
            x = (x - self.table) * self.scale
        return x


class Shifted(Shift):
    """Has them itself, and can be traced."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(first, nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layers((x - self.table) * self.scale)
        return scores


@pytest.mark.parametrize("first", [nn.Identity, Shift])
def test_a_tensor_under_the_name_of_a_class_attribute_comes_along(first: type[nn.Module], one_thread: None) -> None:
    """A buffer of that name could not be read: the class has the name first."""
    model = own(partial(Shifted, first()), Shape((5,)))
    parts = model.cut(2, None)
    require_the_whole(model, parts, torch.randn(6, 5))
    elsewhere = model.part(*parts[0]).to("meta")
    assert elsewhere({"s": torch.empty(6, 5, device="meta")})["s"].is_meta


class Named(nn.Module):
    """Has names that a part might have too."""

    draws: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.models = nn.Linear(5, 4)
        self.pooling = nn.Linear(4, 4)
        self.forwards = nn.Linear(4, 3)
        self.register_buffer("draws", torch.arange(5.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.forwards(torch.relu(self.pooling(torch.relu(self.models(x - self.draws)))))
        return scores


def test_a_model_may_have_the_names_of_a_part(one_thread: None) -> None:
    model = own(Named, Shape((5,)))
    parts = model.cut(2, None)
    require_the_whole(model, parts, torch.randn(6, 5))
    chain = [model.part(*part) for part in parts]
    names = ["models.weight", "models.bias", "draws", "pooling.weight", "pooling.bias"]
    assert sorted(name for part in chain for name in part.state_dict()) == sorted(names)
    passing = {"s": torch.randn(2, 5)}
    for part in (copy.deepcopy(chain[0]), pickle.loads(pickle.dumps(chain[0]))):
        assert torch.equal(part(passing)["s"], chain[0](passing)["s"])
        assert part.to("meta")({"s": passing["s"].to("meta")})["s"].is_meta
    for part in chain:
        for name, layer in part.named_modules():
            assert part.get_submodule(name) is layer
    for whole in (joined(chain), joined([*chain, model.classifier(parts)])):
        exported = torch.export.export(whole.eval(), (passing,)).module()
        torch.testing.assert_close(exported(passing), whole(passing))


class Settings:
    def __init__(self, power: int = 2) -> None:
        self.power, self.whose = power, self


class Scaled(nn.Module):
    """Computes by what no parameter and no layer has."""

    def __init__(self, **others: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 3)
        self.register_buffer("shift", torch.ones(3), persistent=False)
        self.scale, self.act, self.settings, self.names = 1.0, torch.relu, Settings(), {0, 8, "a"}
        self.offset = torch.zeros(3)
        for name, value in others.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (self.layer(x) + self.shift) * self.scale + self.offset
        return torch.as_tensor(self.act(x) ** self.settings.power)


def test_a_module_is_known_by_all_that_it_computes_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """And by nothing that is another in another process: no address, no order of a set."""
    same = [Scaled(), Scaled(names={8, "a", 0}), cloudpickle.loads(cloudpickle.dumps(Scaled()))]
    assert len({module_sha256(each) for each in same}) == 1
    others = [
        Scaled(scale=2.0),
        Scaled(act=torch.sin),
        Scaled(act=partial(nn.functional.elu, alpha=2.0)),
        Scaled(act=partial(nn.functional.elu, alpha=3.0)),
        Scaled(act=lambda x: x + 1),
        Scaled(act=lambda x: x + 2),
        Scaled(act=lru_cache(lambda x: x + 1)),
        Scaled(act=lru_cache(lambda x: x + 2)),
        Scaled(settings=Settings(3)),
        Scaled(shift=torch.zeros(3)),
        Scaled(offset=torch.ones(3)),
        Scaled(names=("a",)),
    ]
    found = {module_sha256(each) for each in others} | {module_sha256(same[0])}
    monkeypatch.setattr(Scaled, "forward", lambda self, x: self.layer(x))
    found |= {module_sha256(same[0])}
    for number in (lambda self: 1.0, lambda self: 2.0):
        monkeypatch.setattr(Scaled, "power", cached_property(number), raising=False)
        found |= {module_sha256(same[0])}
    assert len(found) == len(others) + 4


def test_the_values_of_tensors_may_be_left_out() -> None:
    """Layers also hold them where they are no parameters: a GRU has a list of its own."""

    def drawn(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.ModuleList([nn.GRU(3, 3), nn.utils.spectral_norm(nn.Linear(3, 3))])

    one, other = drawn(0), drawn(1)
    assert module_sha256(one) != module_sha256(other)
    assert module_sha256(one, values=False) == module_sha256(other, values=False)
    assert module_sha256(Scaled(), values=False) != module_sha256(Scaled(offset=torch.zeros(1)), values=False)


def nested(depth: int) -> list[Any]:
    held: list[Any] = [depth]
    for _ in range(60):
        held = [held, held]
    return held


@pytest.mark.parametrize(
    ("make", "one", "other"),
    [
        (lambda value: numpy.array([1, value], dtype=">f4"), 2, 3),
        (lambda value: numpy.array([1, "a", [value]], dtype=object), 2, 3),
        (lambda value: numpy.array(["a", value]), "b", "c"),
        (lambda value: torch.diag(torch.tensor([1.0, value])).to_sparse(), 2, 3),
        (lambda value: torch.diag(torch.tensor([1.0, value])).to_sparse_csr(), 2, 3),
        (lambda value: torch.complex(torch.ones(2), torch.tensor([1.0, value])).conj(), 2, 3),
        (lambda value: torch.complex(torch.ones(2), torch.tensor([1.0, value])).conj().imag, 2, 3),
        (lambda value: torch.empty(value, device="meta"), 2, 3),
        (nested, 1, 2),
    ],
)
def test_a_module_is_known_by_whatever_it_holds(make: Callable[[Any], Any], one: Any, other: Any) -> None:
    first, again, changed = (module_sha256(Scaled(held=make(value))) for value in (one, one, other))
    assert first == again != changed


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise RuntimeError('made for an older torch')", "cannot be imported: RuntimeError: made for an older torch"),
        ("import nowhere_to_be_found", "cannot be imported: ModuleNotFoundError: No module named 'nowhere_to"),
    ],
)
def test_a_package_that_cannot_be_imported_says_why(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "timm.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(SpecError, match=rf"timm {said}.*alray\[timm\]"):
        made("timm:resnet18", {}, nothing, sample=IMAGE)
