"""Models whose `forward` does more than operations on its input: the chain of parts trains as the whole model does, or
the model is refused with the line."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from alray.errors import SpecError
from alray.nn.imported.model import ImportedModel
from alray.nn.shape import Shape
from alray.randomness.generators import put_back, seed_all

SAMPLE = Shape((3, 4, 4))
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
    """The same with what the case adds in a submodule of its own."""

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
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():  # lost
            return torch.tanh(x)


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


class CounterOutside(Own):
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        CALLS[0] += 1
        return x * min(1.0, CALLS[0] / 50)  # lost


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
        with torch.no_grad():  # lost
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
        return torch.tanh(self.kept.pop())  # lost


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
    """Has a gradient of its own."""

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
        before = x
        x += 1.0
        return x * before


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


class CumulativeNorm(Own):
    def make(self) -> None:
        self.norm = nn.BatchNorm1d(WIDTH, momentum=None)

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.norm(x)
        return result


CASES = [value for value in list(globals().values()) if isinstance(value, type) and issubclass(value, Own) and value is not Own]


def own(make: Callable[[], nn.Module]) -> ImportedModel:
    seed_all(torch.device("cpu"), 0)
    return ImportedModel("python:nets.Net", {}, load=lambda reference: make)


def trained(modules: list[nn.Module], samples: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    """Ten mini-batches in training, each followed by one in evaluation: scores, and then weights and buffers."""
    for module in modules:
        module.train()
    parameters = {name: each for module in modules for name, each in module.named_parameters()}
    optimizer = torch.optim.SGD([each for _, each in sorted(parameters.items())], lr=0.05)
    for step in range(10):
        for training in (True, False):
            seed_all(torch.device("cpu"), step)
            value = samples[step % 3 : step % 3 + 4].clone()
            with torch.set_grad_enabled(training):
                for module in modules:
                    value = module.train(training)(value)
            yield [value.detach()]
            if training:
                optimizer.zero_grad()
                value.square().mean().backward()
                optimizer.step()
    state = {name: each for module in modules for name, each in module.state_dict().items()}
    yield [state[name] for name in sorted(state)]


def outcome(make: Callable[[], nn.Module]) -> str:
    """`equal`, or the refusal."""
    model = own(make)
    with put_back():
        try:
            parts = model.cut("auto", None, SAMPLE)
            model.prove(parts, SAMPLE)
        except SpecError as error:
            return str(error)
        whole = own(make).whole
        chain = [model.part(*part) for part in parts] + [model.classifier(parts)]
        assert len(chain) > 2
        CALLS[0] = 0
        samples = torch.randn(8, *SAMPLE)
        expected = list(trained([whole], samples))
        CALLS[0] = 0
        found = list(trained(chain, samples))
        for a, b in zip(expected, found, strict=True):
            for one, other in zip(a, b, strict=True):
                if not torch.allclose(one, other, atol=1e-6): return "WRONG"
    return "equal" + (f", one piece {sorted(model.opaque)}" if model.opaque else "")
if __name__ == "__main__":
    import warnings; warnings.simplefilter("ignore")
    for case in CASES:
        for make in (case, lambda: Within(Extra(case))):
            try: r = outcome(make)
            except Exception as e:
                import traceback; r = "CRASH " + traceback.format_exc()[-500:]
            print(case.__name__, "root" if make is case else "sub", "|", r[:330])
