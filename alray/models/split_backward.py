"""A backward pass in two parts: first what the stage below waits for, later the gradients of large weights.

The idea is that of Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024), section 2. The gradients of the weights
of linear and convolutional layers take about half of a backward pass, and nothing waits for them. So each of these
layers keeps its input and, from the first part on, the gradient of its output; the second part computes the gradients
of its weights from these. All other gradients belong to the first part, those of layers called by torch's functions
instead of its modules too. No graph is walked twice.

The formulas are those of a whole backward pass, so the bits are the same. With x [n, in], W [out, in] and the gradient
g [n, out] of x W^T + b: the gradient of x is g W, that of W is g^T x, and that of b is the sum of the rows of g.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Gradients = list[tuple[nn.Parameter, torch.Tensor]]


class SplitBackward:
    """Splits the backward passes of these modules; each micro-batch has one `LaterWeights`."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        every = dict.fromkeys(layer for module in modules for layer in module.modules())
        self._layers = [layer for layer in every if isinstance(layer, _TYPES) and _is_plain(layer)]
        self._watched: set[nn.Parameter] = set()
        self._deferring: LaterWeights | None = None

    @contextmanager
    def noting(self, later: LaterWeights) -> Iterator[None]:
        """Within it, a forward pass notes its layers."""
        for layer in self._layers:
            layer.__dict__["forward"] = partial(self._forward, later, layer)  # modules look for it here first
        try:
            yield
        finally:
            for layer in self._layers:
                del layer.__dict__["forward"]

    def _forward(
        self, later: LaterWeights, layer: _Torchs, *given: torch.Tensor, **named: torch.Tensor
    ) -> torch.Tensor:
        """The layer's forward pass, noted where its weights can wait."""
        weight, bias = layer.weight, layer.bias
        plain: Callable[..., torch.Tensor] = type(layer).forward
        if not torch.is_grad_enabled() or not _learn(weight, bias):
            return plain(layer, *given, **named)
        (s,) = (*given, *named.values())
        dimensions = s.ndim if isinstance(layer, nn.Linear) else weight.ndim
        if not s.requires_grad or not s.is_contiguous() or s.ndim != dimensions or s.ndim < 2:
            return plain(layer, s)
        lowers = torch.is_autocast_enabled(s.device.type)
        if lowers and s.dtype == torch.float64:  # which autocast leaves as it is
            return plain(layer, s)
        if isinstance(layer, nn.Linear):
            noted: _Layer = _Linear(weight, bias)
        else:
            noted = _Convolution(weight, bias, (layer.stride, layer.padding, layer.dilation, layer.groups))
        self._note(later, noted)
        apart: Callable[[torch.Tensor, _Layer], torch.Tensor] = _Apart.apply
        if not lowers:
            return apart(s, noted)
        s = s.to(torch.get_autocast_dtype(s.device.type))  # as autocast does
        with torch.autocast(s.device.type, enabled=False):
            return apart(s, noted)

    def _note(self, later: LaterWeights, layer: _Layer) -> None:
        later.layers.append(layer)
        for parameter in layer.parameters:
            if parameter not in self._watched:
                self._watched.add(parameter)
                parameter.register_hook(partial(self._came, parameter))

    def _came(self, parameter: nn.Parameter, gradient: torch.Tensor) -> torch.Tensor | None:
        """A weight may be used outside of these layers too.

        What it gets there is added to the rest before it is added to the gradients of earlier micro-batches, as in a
        whole backward pass.
        """
        if self._deferring is None:
            return None
        self._deferring.elsewhere.append((parameter, gradient))
        return torch.zeros_like(gradient)

    @contextmanager
    def deferring(self, later: LaterWeights) -> Iterator[None]:
        """Within it, a backward pass leaves out the gradients of the weights of these layers."""
        self._deferring = later
        try:
            yield
        finally:
            self._deferring = None


class LaterWeights:
    """The gradients of weights that one micro-batch leaves for later."""

    def __init__(self) -> None:
        self.layers: list[_Layer] = []
        self.elsewhere: Gradients = []

    def compute(self) -> None:
        """Compute the gradients that were left out, and add them to those of earlier micro-batches."""
        total: dict[nn.Parameter, torch.Tensor] = dict(self.elsewhere)
        # The backward pass comes to the layers in the reverse order.
        for layer in reversed(self.layers):
            for parameter, gradient in layer.gradients():
                total[parameter] = total[parameter] + gradient if parameter in total else gradient
        for parameter, gradient in total.items():
            if gradient.dtype != parameter.dtype:  # in mixed precision the sum is of the lower type, as autograd's is
                gradient = gradient.to(parameter.dtype)
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad.add_(gradient)
        self.layers, self.elsewhere = [], []


class _Layer(ABC):
    """One call of a layer: its input and, once the backward pass has come to it, the gradient of its output."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, further: tuple[Any, ...] = ()) -> None:
        self.weight = weight
        self.bias = bias
        self.further = further  # of a convolution: stride, padding, dilation, groups
        self.input: torch.Tensor
        self.gradient: torch.Tensor | None = None

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Those that learn."""
        return [each for each in (self.weight, self.bias) if isinstance(each, nn.Parameter) and each.requires_grad]

    def lowered(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weight and bias in the type of the input: in mixed precision it is a lower one."""
        dtype = self.input.dtype
        if self.weight.dtype == dtype:
            return self.weight, self.bias
        return self.weight.to(dtype), None if self.bias is None else self.bias.to(dtype)

    @abstractmethod
    def output(self) -> torch.Tensor:
        """Compute the layer."""

    @abstractmethod
    def input_gradient(self) -> torch.Tensor:
        """The gradient of the input."""

    @abstractmethod
    def gradients(self) -> Gradients:
        """The gradients of the parameters; none where the backward pass has not come to the layer."""


class _Linear(_Layer):
    def output(self) -> torch.Tensor:
        return functional.linear(self.input, *self.lowered())

    def input_gradient(self) -> torch.Tensor:
        assert self.gradient is not None
        rows = self.gradient.reshape(-1, self.gradient.shape[-1])
        return rows.mm(self.lowered()[0]).view(self.input.shape)

    def gradients(self) -> Gradients:
        if self.gradient is None:
            return []
        rows = self.gradient.reshape(-1, self.gradient.shape[-1])
        found: dict[int, Callable[[], torch.Tensor]] = {
            id(self.weight): lambda: rows.t().mm(self.input.reshape(-1, self.input.shape[-1])),
            id(self.bias): lambda: rows.sum(0),
        }
        return [(parameter, found[id(parameter)]()) for parameter in self.parameters]


class _Convolution(_Layer):
    def output(self) -> torch.Tensor:
        weight, bias = self.lowered()
        result: torch.Tensor = _CONVOLUTIONS[weight.ndim - 2](self.input, weight, bias, *self.further)
        return result

    def input_gradient(self) -> torch.Tensor:
        (found, _, _) = self._backward(True, False, False)
        assert found is not None
        return found

    def gradients(self) -> Gradients:
        if self.gradient is None:
            return []
        _, *found = self._backward(False, self.weight.requires_grad, self.bias is not None and self.bias.requires_grad)
        return list(zip(self.parameters, (each for each in found if each is not None), strict=True))

    def _backward(self, *wanted: bool) -> tuple[torch.Tensor | None, ...]:
        """The gradients of input, weight and bias; None for those that are not wanted."""
        weight, bias = self.lowered()
        stride, padding, dilation, groups = self.further
        result: tuple[torch.Tensor | None, ...] = torch.ops.aten.convolution_backward(
            self.gradient,
            self.input,
            weight,
            None if bias is None else bias.shape,
            stride,
            padding,
            dilation,
            False,
            [0] * (weight.ndim - 2),
            groups,
            wanted,
        )
        return result


_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


class _Apart(torch.autograd.Function):
    """A layer whose backward computes the gradient of its input alone."""

    @staticmethod
    def forward(ctx: Any, s: torch.Tensor, layer: _Layer) -> torch.Tensor:
        ctx.layer = layer
        layer.input = s.detach()
        return layer.output()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.layer.gradient = gradient
        return ctx.layer.input_gradient(), None


_Torchs = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
_TYPES = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def _is_plain(layer: _Torchs) -> bool:
    """Whether the layer computes what its type does, and pads with zeros as given."""
    if type(layer) not in _TYPES or "forward" in layer.__dict__:
        return False
    return isinstance(layer, nn.Linear) or (layer.padding_mode == "zeros" and not isinstance(layer.padding, str))


def _learn(*weights: torch.Tensor | None) -> bool:
    """Whether the first one learns, and each that learns is a parameter itself."""
    learning = [each for each in weights if each is not None and each.requires_grad]
    return bool(learning) and learning[0] is weights[0] and all(isinstance(each, nn.Parameter) for each in learning)
