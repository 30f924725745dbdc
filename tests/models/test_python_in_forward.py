"""Models whose `forward` does more than operations on its input: the chain of parts trains as the whole model does,
and what no checkpoint holds is refused with the line."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from alray.core.errors import SpecError
from alray.core.randomness.generators import put_back, seed_all
from alray.models.imported.cutting import Refused
from alray.models.imported.given import GivenModel
from alray.models.imported.part import Part
from alray.models.imported.proof import draws_so_far, prove
from alray.models.shape import Shape
from tests.models.chains import backward, passed

SAMPLE = Shape((3, 4, 4))
CPU = torch.device("cpu")
WIDTH = 8
CALLS = [0]
"""A counter outside of any model."""


class Own(nn.Module):
    """Three layers. What a case adds lies between the first two, in `forward` itself (`extra`)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(48, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 5)
        self.make()

    def make(self) -> None:
        """Further layers and state."""

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x.flatten(1)))
        x = self.extra(x)
        result: torch.Tensor = self.last(torch.relu(self.second(x)))
        return result


class Within(nn.Module):
    """The same with what the case adds in a separate submodule."""

    def __init__(self, extra: nn.Module) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(48, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 5)
        self.extra = extra

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x.flatten(1)))
        x = self.extra(x)
        result: torch.Tensor = self.last(torch.relu(self.second(x)))
        return result


class Extra(nn.Module):
    """A submodule that computes what `extra` of a case does."""

    def __init__(self, case: type[Own]) -> None:
        super().__init__()
        self.case = case
        case.make(self)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.case.extra(self, x)  # type: ignore[arg-type]


class NoGrad(Own):
    """In the middle: nothing that comes before learns."""

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return torch.tanh(x)


class OfLayers(Own):
    """A context lies around layers of torch."""

    def make(self) -> None:
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))


def of_layers(name: str, context: Callable[[], AbstractContextManager[Any]]) -> type[Own]:
    def extra(self: OfLayers, x: torch.Tensor) -> torch.Tensor:
        with context():  # lost
            y = torch.tanh(self.layers[1](self.layers[0](x)))
        scores: torch.Tensor = self.layers[2](x) * y.clone().to(x.dtype)
        return scores

    return type(name, (OfLayers,), {"extra": extra})


@contextmanager
def default_of_8_bytes() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # lost
    try:
        yield
    finally:
        torch.set_default_dtype(before)


NoGradOfLayers = of_layers("NoGradOfLayers", torch.no_grad)
GradOfLayers = of_layers("GradOfLayers", torch.enable_grad)  # in evaluation, too
InferenceModeOfLayers = of_layers("InferenceModeOfLayers", torch.inference_mode)
AutocastOfLayers = of_layers("AutocastOfLayers", partial(torch.autocast, "cpu", torch.bfloat16))
KernelsOfLayers = of_layers("KernelsOfLayers", partial(sdpa_kernel, [SDPBackend.MATH]))
DefaultTypeOfLayers = of_layers("DefaultTypeOfLayers", default_of_8_bytes)


class SwitchedOffForLayers(OfLayers):
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        is_on = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        y = torch.tanh(self.layers[0](x))
        torch.set_grad_enabled(is_on)
        return self.layers[2](self.layers[1](x)) * y


class LayerByACounter(Own):
    """Which layer of torch computes depends on what no trace sees."""

    def make(self) -> None:
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        CALLS[0] += 1
        return torch.tanh(self.layers[CALLS[0] % 2](x))  # lost


class GivesAnObject(Own):
    """A layer of torch gets something that is no tensor."""

    def make(self) -> None:
        self.layer = nn.Identity()

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(Holder(x)).value)  # lost


class Holder:
    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


class Autocast(Own):
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):  # lost
            return (x @ x.new_ones(WIDTH, WIDTH)).float()


class InferenceMode(Own):
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():  # lost
            scale = torch.sigmoid(x).mean(0)
        return x * scale.clone()


class Noise(Own):
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(WIDTH)  # lost


class NoiseOfNumpy(Own):
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return x * float(numpy.random.uniform(0.5, 1.5))  # lost


class LayerDrop(Own):
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and random.random() < 0.5:  # lost
            return x
        return torch.tanh(x)


class LayerDropOfTorch(Own):
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and torch.rand(()) < 0.5:  # lost
            return x
        return torch.tanh(x)


class NoiseOfItsOwn(Own):
    def make(self) -> None:
        self.generator = torch.Generator().manual_seed(3)

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(WIDTH, generator=self.generator)  # lost


class NoiseOfTheInput(Own):
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x) + x.new_empty(x.shape[0], 1).bernoulli_(0.5)


class Counter(Own):
    def make(self) -> None:
        self.calls = 0

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.training  # lost
        return x * min(1.0, self.calls / 5)


class CounterInABuffer(Own):
    calls: torch.Tensor

    def make(self) -> None:
        self.register_buffer("calls", torch.zeros(()))

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1.0  # lost
        return x * torch.clamp(self.calls / 5, max=1.0)


class History(Own):
    def make(self) -> None:
        self.history: list[int] = []

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        self.history.append(len(self.history))  # lost
        return x / len(self.history)


class RunningMean(Own):
    mean: torch.Tensor

    def make(self) -> None:
        self.register_buffer("mean", torch.zeros(WIDTH))

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x - self.mean


class RunningMeanAssigned(Own):
    mean: torch.Tensor

    def make(self) -> None:
        self.register_buffer("mean", torch.zeros(WIDTH))

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)  # lost
        return x - self.mean


class RunningMeanNoGrad(Own):
    mean: torch.Tensor

    def make(self) -> None:
        self.register_buffer("mean", torch.zeros(WIDTH))

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.1)
        return x - self.mean


class IndexedBuffer(Own):
    k: torch.Tensor

    def make(self) -> None:
        self.register_buffer("k", torch.rand(WIDTH))

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.k[None, :] + self.k.exp()[:1]


class Cache(Own):
    def make(self) -> None:
        self.cache: dict[int, torch.Tensor] = {}

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        if 0 not in self.cache:
            self.cache[0] = torch.arange(float(WIDTH))  # lost
        return x * self.cache[0]


class KeepsFeatures(Own):
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        self.features = torch.tanh(x)  # lost
        return self.features


class Hooks(Own):
    def make(self) -> None:
        layer = nn.Linear(WIDTH, WIDTH)
        layer.register_forward_hook(lambda module, given, result: result * 0.5)
        layer.register_forward_pre_hook(lambda module, given: (given[0] + 1.0,))
        self.layer = layer

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(x))


class HookThatKeeps(Own):
    def make(self) -> None:
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.kept: list[torch.Tensor] = []
        self.layer.register_forward_hook(lambda module, given, result: self.kept.append(result))

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        self.layer(x)
        return torch.tanh(self.kept.pop())


class FunctionOfItsLayers(Own):
    """Has a function with a variable, as minGPT's block."""

    def make(self) -> None:
        layer = self.layer = nn.Linear(WIDTH, WIDTH)
        self.compute = lambda x: torch.tanh(layer(x))

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.compute(x)
        return result


class WeightNorm(Own):
    def make(self) -> None:
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(x))


class SpectralNorm(Own):
    def make(self) -> None:
        self.layer = nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(x))


class OldWeightNorm(Own):
    def make(self) -> None:
        self.layer = nn.utils.weight_norm(nn.Linear(WIDTH, WIDTH))  # type: ignore[no-untyped-call]

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(x))


class OldSpectralNorm(Own):
    def make(self) -> None:
        self.layer = nn.utils.spectral_norm(nn.Linear(WIDTH, WIDTH))

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(x))


class Checkpointed(Own):
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(torch.tanh, x, use_reentrant=False)
        return result


class Double(torch.autograd.Function):
    """Defines its gradient."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2.0  # lost

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.sign()


class OwnGradient(Own):
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = Double.apply(x)
        return result


class WritesAnAlias(Own):
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        before = x = x * 2.0
        x += 1.0
        return x - 0.5 * before


class AsksForItsClass(Own):
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) if isinstance(x, torch.Tensor) else x


class ChoosesByValues(Own):
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.max() > 0.5 else torch.tanh(x)  # lost


class ReadsABuffer(Own):
    limit: torch.Tensor

    def make(self) -> None:
        self.register_buffer("limit", torch.tensor(2.0))

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return x.clamp(max=float(self.limit))  # lost


class ReadsAllParameters(Own):
    def make(self) -> None:
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return x / (1.0 + sum(each.square().sum() for each in self.parameters()))  # lost


class SharesAParameter(Own):
    def make(self) -> None:
        self.scale = nn.Parameter(torch.rand(WIDTH))
        self.layer = nn.Linear(WIDTH, WIDTH)

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(x * self.scale)) * self.scale


class SharesABuffer(Own):
    k: torch.Tensor

    def make(self) -> None:
        self.register_buffer("k", torch.rand(WIDTH))
        self.layer = nn.Linear(WIDTH, WIDTH)

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        k = self.k.cos()
        return torch.tanh(self.layer(x * k)) * k


class ViewOfAWeight(Own):
    def make(self) -> None:
        self.token, self.layer = nn.Parameter(torch.ones(1, WIDTH)), nn.Linear(WIDTH, WIDTH)

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.layer(self.token.expand(len(x), -1)))


class CumulativeNorm(Own):
    def make(self) -> None:
        self.norm = nn.BatchNorm1d(WIDTH, momentum=None)

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.norm(x)
        return result


class TrainsInPart(Own):
    """Its `train` leaves a layer in evaluation."""

    def make(self) -> None:
        self.norm = nn.BatchNorm1d(WIDTH)

    def train(self, mode: bool = True) -> TrainsInPart:
        super().train(mode)
        self.norm.eval()
        return self

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.norm(x)
        return result


CASES = (
    NoGrad,
    NoGradOfLayers,
    GradOfLayers,
    SwitchedOffForLayers,
    InferenceModeOfLayers,
    AutocastOfLayers,
    KernelsOfLayers,
    DefaultTypeOfLayers,
    GivesAnObject,
    Autocast,
    InferenceMode,
    Checkpointed,
    OwnGradient,
    Noise,
    NoiseOfNumpy,
    NoiseOfTheInput,
    LayerDrop,
    LayerDropOfTorch,
    CounterInABuffer,
    Cache,
    RunningMean,
    RunningMeanAssigned,
    RunningMeanNoGrad,
    IndexedBuffer,
    SharesABuffer,
    ReadsABuffer,
    SharesAParameter,
    ReadsAllParameters,
    Hooks,
    HookThatKeeps,
    FunctionOfItsLayers,
    WeightNorm,
    SpectralNorm,
    OldSpectralNorm,
    ViewOfAWeight,
    CumulativeNorm,
    TrainsInPart,
    WritesAnAlias,
    AsksForItsClass,
    ChoosesByValues,
)
"""Those whose parts compute what the whole model computes, whether the case lies in its `forward` or in that of a
submodule."""
REFUSED = (LayerByACounter, NoiseOfItsOwn, Counter, History, KeepsFeatures, OldWeightNorm)
"""The others. An error names the line where their `forward` begins, if that is the user's."""


class DropsLayers(nn.Module):
    """In training it leaves layers out by numbers that are Python's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(48, WIDTH), nn.Linear(WIDTH, 3)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(x.flatten(1)))
        for layer in self.layers:
            if not self.training or random.random() > 0.5:
                x = x + torch.tanh(layer(x))
        scores: torch.Tensor = self.last(x)
        return scores


def test_layers_that_are_drawn_at_random_are_the_reason() -> None:
    with pytest.raises(SpecError, match=r"leaves out `layers\.\d` in training, as where layers are drawn at random"):
        own(DropsLayers).cut(3, None)


def own(make: Callable[[], nn.Module]) -> GivenModel:
    seed_all(CPU, 0)
    return GivenModel(make(), "python:nets.Net", {}, SAMPLE)


def trained(modules: Sequence[nn.Module], samples: torch.Tensor) -> dict[str, torch.Tensor]:
    """The scores of ten mini-batches in training, each followed by one in evaluation, and then weights and buffers."""
    found = {}
    parameters = {name: each for module in modules for name, each in module.named_parameters()}
    optimizer = torch.optim.SGD([parameters[name] for name in sorted(parameters)], lr=0.05)
    for step in range(10):
        for training in (True, False):
            seed_all(CPU, step)
            value = samples[step % 3 : step % 3 + 4].clone()
            for module in modules:
                module.train(training)
            with torch.set_grad_enabled(training):
                scores, edges = passed(modules, {"s": value}) if len(modules) > 1 else (modules[0](value), [])
                found[f"{step} {training}"] = scores.detach()
                if training:
                    optimizer.zero_grad()
                    backward(scores, edges)
                    optimizer.step()
    return found | {name: each for module in modules for name, each in module.state_dict().items()}


def made(case: type[Own], *, within: bool) -> Callable[[], nn.Module]:
    return (lambda: Within(Extra(case))) if within else case


@pytest.mark.few
@pytest.mark.parametrize("within", [False, True], ids=["own", "submodule"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_parts_train_as_the_whole(case: type[Own], within: bool, one_thread: None) -> None:
    make = made(case, within=within)
    with put_back():
        model = own(make)
        parts = model.cut("auto", None, whole=True)
        chain = [model.part(*part) for part in parts] + [model.classifier(parts)]
        samples = torch.randn(8, *SAMPLE)
        expected, found = trained([own(make).whole], samples), trained(chain, samples)
    assert bool(model.reason) == (case is ReadsAllParameters and not within)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        torch.testing.assert_close(value, found[name], rtol=0.0, atol=0.0, equal_nan=True, msg=name)


class TurnsBetweenAxes(nn.Module):
    """A matrix of the sample turns its points, whose axes then change places: the gradient of the product lies
    otherwise in memory than the product (PointNet, Qi 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.turn, self.mix = nn.Conv1d(3, 8, 1), nn.Linear(8, 64), nn.Conv1d(8, 16, 1)
        self.last = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        points = self.lift(x.flatten(2))
        matrix = self.turn(points.amax(2)).view(-1, 8, 8)
        turned = torch.bmm(points.transpose(2, 1), matrix).transpose(2, 1)
        result: torch.Tensor = self.last(torch.tanh(self.mix(turned).amax(2)))
        return result


def test_a_gradient_lies_in_memory_as_in_the_whole_model(one_thread: None) -> None:
    samples = torch.randn(8, 3, 5, 4)
    with put_back():
        seed_all(CPU, 0)
        model = GivenModel(TurnsBetweenAxes(), "python:nets.Net", {}, Shape((3, 5, 4)))
        parts = model.cut("auto", ["bmm"], whole=True)
        chain = [model.part(*part) for part in parts] + [model.classifier(parts)]
        seed_all(CPU, 0)
        expected, found = trained([TurnsBetweenAxes()], samples), trained(chain, samples)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        torch.testing.assert_close(value, found[name], rtol=0.0, atol=0.0, msg=name)


def test_a_buffer_that_is_replaced_is_used_no_more() -> None:
    """Another tensor may get its memory."""
    cuts = [own(RunningMeanAssigned).cut("auto", None) for _ in range(3)]
    assert [[part.until for part in parts] for parts in cuts] == [["sub", "relu_1"]] * 3


@pytest.mark.few
@pytest.mark.filterwarnings("ignore:.*weight_norm")
@pytest.mark.parametrize("within", [False, True], ids=["own", "submodule"])
@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.__name__)
def test_what_cannot_be_resumed_is_refused_at_its_forward(case: type[Own], within: bool, one_thread: None) -> None:
    with put_back(), pytest.raises(SpecError) as caught:
        own(made(case, within=within)).cut("auto", None, whole=True)
    (problem,) = caught.value.problems
    assert problem.key == "model.from" and problem.hint
    assert (problem.line is None) == (case is OldWeightNorm)
    if problem.line is not None:
        assert problem.file == __file__ and "def forward" in Path(__file__).read_text().splitlines()[problem.line - 1]


def test_the_proof_leaves_the_model_and_the_generators_as_they_are() -> None:
    model = own(lambda: Within(Extra(RunningMeanNoGrad)))
    before = {name: value.clone() for name, value in model.whole.state_dict().items()}
    draws = draws_so_far()
    model.cut("auto", None)
    assert draws_so_far() == draws
    assert all(torch.equal(value, before[name]) for name, value in model.whole.state_dict().items())


@pytest.mark.parametrize("fault", ["gradient", "draws", "scores", "buffer"])
def test_a_chain_that_is_not_the_whole_is_refused(fault: str) -> None:
    seed_all(CPU, 0)
    whole = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.BatchNorm1d(8), nn.Linear(8, 5))
    model = GivenModel(whole, "python:nets.Net", {}, SAMPLE)
    chain = [model.part(None, "2", shared=whole), model.part("2", None, shared=whole)]
    if fault == "buffer":
        chain[0].get_submodule("2").momentum = 0.2  # type: ignore[assignment]

    def changed(part: Part, given: Any, passing: Any) -> Any:
        if fault == "draws":
            torch.rand(1)
        scores = passing["s"].detach() if fault == "gradient" else passing["s"]
        return passing | {"s": scores * (1.001 if fault == "scores" else 1.0)}

    chain[0].register_forward_hook(changed)
    with pytest.raises(Refused, match="would be other than of the whole"):
        prove(whole, copy.deepcopy(whole), chain, SAMPLE, "`python:nets.Net`")
