"""A backward pass in two parts: first what the stage below waits for, later the gradients of large weights.

The idea is that of Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024), section 2. The gradients of the weights
of linear and convolutional layers take about half of a backward pass, and nothing waits for them. So when the first
part comes to one of these layers, it notes the layer's input and the gradient of its output; the second part computes
the gradients of its weights from these. No graph is walked twice.

All other gradients belong to the first part: those of recurrent layers, of torch's own attention, of transformers'
`Conv1D`, of convolutions with `padding="same"`, and of all that calls `functional.linear` itself. A block of these
alone leaves nothing for the second part.

The formulas are those of a whole backward pass, so the bits are the same. With x [n, in], W [out, in] and the gradient
g [n, out] of x W^T + b: the gradient of x is g W, that of W is g^T x, and that of b is the sum of the rows of g.

A block may take part in the backward pass itself: it may compute a forward again, or take gradients within its forward.
So each of these layers stays an operation of autograd that saves its input and has gradients for all that it is given.
It leaves weights for later only in the pass that is split: not in one within a forward, nor in one within that pass.
A weight that has hooks, or that something else uses too, has its gradient in the first part. In mixed precision the
gradient of one that something else uses too may differ in its last bit: its parts are added in float32, not in bf16.
A hook on the node of autograd that adds up a weight's gradient cannot be seen: it gets None for a gradient that waits.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd.forward_ad import unpack_dual
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.nn import functional

from alray.core import accelerator
from alray.core.compat import (
    are_functorch_transforms_active,
    current_graph_task_id,
    sequence_number,
    will_engine_execute_node,
)

Gradients = list[tuple[nn.Parameter, torch.Tensor]]
Learning = tuple[nn.Parameter | None, nn.Parameter | None]
"""The weight and the bias of a layer, where they learn."""


class SplitBackward:
    """Splits the backward passes of modules that follow each other; each micro-batch has one `LaterWeights`."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        every = dict.fromkeys(layer for module in modules for layer in module.modules())
        self._forwards = {
            layer: _Forward(self._forward, layer) for layer in every if isinstance(layer, _TYPES) and _is_plain(layer)
        }
        self._watched: set[nn.Parameter] = set()
        self._used_elsewhere: set[nn.Parameter] = set()  # parameters that not only these layers use
        self._waited: set[nn.Parameter] = set()  # parameters that had a gradient which was left for later
        self._looked_at: set[int] = set()  # numbers of operations of the forward passes that have shown them
        self._deferring: LaterWeights | None = None
        self._pass: int | None = None  # autograd's number of the pass that is split

    @contextmanager
    def noting(self, later: LaterWeights | None = None) -> Iterator[None]:
        """Around a forward pass whose backward pass is to be split.

        Args:
            later: of the same micro-batch; None: the pass is computed again within the backward pass.
        """
        for layer, forward in self._forwards.items():  # modules look for it there first, and so does who wraps it
            layer.__dict__.setdefault("forward", forward)
        begun = sequence_number()
        try:
            yield
        finally:
            if later is not None:
                later.operations = sequence_number() - begun
            for layer, forward in self._forwards.items():
                if layer.__dict__.get("forward") is forward:
                    del layer.__dict__["forward"]

    def _forward(self, layer: _Torchs, *given: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        """The layer's forward pass, by `_Apart` where its weights can wait."""
        plain: Callable[..., torch.Tensor] = type(layer).forward
        if torch.compiler.is_compiling() or are_functorch_transforms_active() or not torch.is_grad_enabled():
            return plain(layer, *given, **named)
        weight, bias = layer.weight, layer.bias
        (s,) = (*given, *named.values())
        if not accelerator.is_plain(s) or isinstance(s, nn.Parameter) or s.is_nested or not s.requires_grad:
            return plain(layer, s)
        if not _can_wait(weight, bias):
            return plain(layer, s)
        if any(unpack_dual(each).tangent is not None for each in (s, weight, bias) if each is not None):
            return plain(layer, s)
        if not (weight.is_contiguous() and s.ndim > 1 if isinstance(layer, nn.Linear) else s.ndim == weight.ndim):
            return plain(layer, s)
        lowers = torch.is_autocast_enabled(s.device.type)
        # Autocast leaves float64 as it is. Without autocast, types that differ are an error.
        if s.dtype == torch.float64 if lowers else s.dtype != weight.dtype:
            return plain(layer, s)
        if isinstance(layer, nn.Linear):
            call: _Call = _LinearCall(self, weight, bias)
        else:
            call = _ConvolutionCall(self, weight, bias, (layer.stride, layer.padding, layer.dilation, layer.groups))
        self._watch(call.parameters)
        apart: Callable[..., torch.Tensor] = _Apart.apply
        if not lowers:
            return apart(s, weight, bias, call)
        s = s.to(torch.get_autocast_dtype(s.device.type))  # as autocast does
        with torch.autocast(s.device.type, enabled=False):
            return apart(s, weight, bias, call)

    def _watch(self, parameters: Iterable[nn.Parameter]) -> None:
        for parameter in parameters:
            if parameter not in self._watched:
                self._watched.add(parameter)
                parameter.register_hook(_Watch(self._came, parameter))

    @contextmanager
    def deferring(self, later: LaterWeights, roots: Sequence[torch.Tensor | GradientEdge]) -> Iterator[None]:
        """Within it, the backward pass from these roots leaves out the gradients of the weights of these layers.

        A forward that is computed again in it saves the same tensors as the first one.
        """
        nodes = [root.node if isinstance(root, GradientEdge) else get_gradient_edge(root).node for root in roots]
        if later.operations not in self._looked_at:  # it may compute something else than those before
            self._looked_at.add(later.operations)
            self._used_elsewhere |= _used_elsewhere(nodes)
        hooks = [node.register_prehook(self._begin) for node in nodes]
        del nodes
        self._deferring = later
        try:
            with self.noting():
                yield
        finally:
            self._deferring = self._pass = None
            for hook in hooks:
                hook.remove()

    def _begin(self, gradients: object) -> None:
        if self._pass is None:
            self._pass = current_graph_task_id()

    def later(self, parameters: Iterable[nn.Parameter]) -> LaterWeights | None:
        """Where the backward pass that runs now leaves these parameters; None: it computes their gradients."""
        if self._deferring is None or current_graph_task_id() != self._pass:
            return None
        parameters = list(parameters)
        # Since the layer ran. Another parameter of the layer may have been left for later by an earlier layer.
        self._used_elsewhere.update(each for each in parameters if _is_hooked(each))
        if not self._used_elsewhere.isdisjoint(parameters):
            return None
        self._waited.update(parameters)
        return self._deferring

    def _came(self, parameter: nn.Parameter, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """A pass has come to a weight, without a gradient where all of it is left for later.

        What it gets otherwise is added to the rest before it is added to the gradients of earlier micro-batches, as in
        a whole backward pass. These may still wait where something else begins to use a weight. So its gradient waits
        behind them then, but for a hook, which must see it now.
        """
        if self._deferring is None:
            return None
        if parameter in self._used_elsewhere and (parameter not in self._waited or _is_hooked(parameter)):
            return None
        if current_graph_task_id() != self._pass and _is_asked_for(parameter):
            return None
        if not parameter.requires_grad:  # frozen since the layer ran: autograd drops its gradient
            return None
        self._deferring.came(parameter, gradient)
        return None if gradient is None else torch.zeros_like(gradient)


def splits(module: nn.Module) -> bool:
    """Whether some of a module's weights can wait: it has a linear or convolutional layer that computes what torch's
    does."""
    return any(
        isinstance(layer, _TYPES) and _is_plain(layer) and _can_wait(layer.weight, layer.bias)
        for layer in module.modules()
    )


class _Forward:
    """The forward of a layer within a pass that is noted. A copy of the layer that a block makes has torch's."""

    def __init__(self, forward: Callable[..., torch.Tensor], layer: _Torchs) -> None:
        self._forward = forward
        self._layer = layer

    def __call__(self, *given: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        return self._forward(self._layer, *given, **named)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., torch.Tensor]:
        plain: Callable[..., torch.Tensor] = type(self._layer).forward
        return partial(plain, copy.deepcopy(self._layer, memo))


class _Watch(partial[torch.Tensor | None]):
    """The hook of a weight of these layers."""


def _used_elsewhere(nodes: Iterable[Node]) -> set[nn.Parameter]:
    """The parameters of a graph that not only layers made by `_Apart` use.

    Three gradients have another sum in another order, and the order of some of them is autograd's.
    """
    found: set[nn.Parameter] = set()
    seen = set(nodes)
    left = list(seen)
    while left:
        node = left.pop()
        for below, _ in node.next_functions:
            if below is None:
                continue
            if _name(below) == "torch::autograd::AccumulateGrad":
                leaf = below.variable  # type: ignore[attr-defined]
                # A leaf that is no parameter is an input, whose memory would be kept.
                if _name(node) != "_ApartBackward" and isinstance(leaf, nn.Parameter):
                    found.add(leaf)
            elif below not in seen:
                seen.add(below)
                left.append(below)
    return found


def _name(node: Node) -> str:
    """The name of an operation. A user's `torch.autograd.Function` may have an attribute `name` in front of it."""
    return type(node).name(node)


class LaterWeights:
    """The gradients of weights that one micro-batch leaves for later."""

    def __init__(self) -> None:
        self.operations = 0
        """Of autograd in its forward pass."""
        self._arrived: list[_Noted | tuple[nn.Parameter, torch.Tensor | None]] = []

    def note(self, noted: _Noted) -> None:
        """The backward pass has come to a layer."""
        self._arrived.append(noted)

    def came(self, parameter: nn.Parameter, gradient: torch.Tensor | None) -> None:
        """The backward pass has come to a weight; None: without a gradient of its own."""
        # What is noted may lie in the memory of another gradient, and in other strides.
        self._arrived.append((parameter, None if gradient is None else _laid_as(parameter, gradient)))

    def gradients(self) -> list[torch.Tensor]:
        """Those of the outputs of layers, from which gradients of weights will be computed."""
        return [each.gradient for each in self._arrived if isinstance(each, _Noted)]

    @torch.no_grad()
    def compute(self, of: Iterable[nn.Parameter] | None = None) -> None:
        """Compute the gradients that were left out, and add them to those of earlier micro-batches.

        They are added in the order in which the pass came to them.

        Args:
            of: the parameters of one component, which shares none with another one; None: of all.
        """
        arrived, self._arrived = self._arrived, []
        if of is not None:
            own = set(of)
            self._arrived = [each for each in arrived if _parameter_of(each) not in own]
            arrived = [each for each in arrived if _parameter_of(each) in own]
        sums: dict[nn.Parameter, torch.Tensor] = {}
        for each in arrived:
            if isinstance(each, _Noted):
                for parameter, gradient in each.gradients():
                    sums[parameter] = sums[parameter] + gradient if parameter in sums else gradient
                continue
            parameter, elsewhere = each
            total = sums.pop(parameter, None)
            if total is not None:  # in mixed precision the sum is of the lower type, as autograd's is
                total = total.to(parameter.dtype)
            if elsewhere is not None:
                total = elsewhere if total is None else elsewhere + total
            if total is None:
                continue
            if parameter.grad is None:
                parameter.grad = total if total.stride() == parameter.stride() else _laid_as(parameter, total)
            else:
                parameter.grad.add_(total)
        assert not sums, "the pass came to a layer and not to its weight"


def _is_asked_for(parameter: nn.Parameter) -> bool:
    """Whether the pass that runs now is one of `torch.autograd.grad` that asks for this parameter's gradient."""
    try:
        will_engine_execute_node(get_gradient_edge(parameter).node)
    except RuntimeError:  # torch's answer for a leaf that such a pass asks for
        return True
    return False


def _parameter_of(arrived: _Noted | tuple[nn.Parameter, torch.Tensor | None]) -> nn.Parameter:
    """A parameter that it is about."""
    return arrived.call.parameters[0] if isinstance(arrived, _Noted) else arrived[0]


def _laid_as(parameter: nn.Parameter, gradient: torch.Tensor) -> torch.Tensor:
    """A copy in the strides of the parameter, as autograd lays gradients out."""
    return torch.empty_like(parameter).copy_(gradient)


class _Call(ABC):
    """One call of a layer. Its methods take the weight, and the bias, in the type of the input.

    Attributes:
        further: of a convolution: stride, padding, dilation, groups.
        parameters: those that learn when the layer runs.
    """

    def __init__(
        self, split: SplitBackward, weight: torch.Tensor, bias: torch.Tensor | None, further: tuple[Any, ...] = ()
    ) -> None:
        self.split = split
        self.weight = weight
        self.bias = bias
        self.further = further
        self._learnt = [
            each if isinstance(each, nn.Parameter) and each.requires_grad else None for each in (weight, bias)
        ]
        self.parameters = [each for each in self._learnt if each is not None]

    @abstractmethod
    def output(self, s: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Compute the layer."""

    @abstractmethod
    def input_gradient(self, gradient: torch.Tensor, s: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """The gradient of the input, from that of the output."""

    @abstractmethod
    def gradients(
        self, gradient: torch.Tensor, s: torch.Tensor, weight: torch.Tensor, learning: Learning
    ) -> list[torch.Tensor | None]:
        """The gradients of weight and bias, from that of the output; None where one does not learn."""

    def learning(self) -> Learning:
        """The weight and the bias, each if it learned when the layer ran, and has not been frozen since."""
        weight, bias = (None if each is None or not each.requires_grad else each for each in self._learnt)
        return weight, bias


class _LinearCall(_Call):
    def output(self, s: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return functional.linear(s, weight, bias)

    def input_gradient(self, gradient: torch.Tensor, s: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        rows, given = gradient.reshape(-1, gradient.shape[-1]), s.reshape(-1, s.shape[-1])
        if given.stride() == (1, len(given)):  # autograd gives it the strides of the input
            return weight.t().mm(rows.t()).t().view(s.shape)
        return rows.mm(weight).view(s.shape)

    def gradients(
        self, gradient: torch.Tensor, s: torch.Tensor, weight: torch.Tensor, learning: Learning
    ) -> list[torch.Tensor | None]:
        rows = gradient.reshape(-1, gradient.shape[-1])
        # torch adds the bias to a product where the input does not lie in rows.
        summed = rows if s.is_contiguous() else gradient
        of_weight, of_bias = learning
        return [
            None if of_weight is None else rows.t().mm(s.reshape(-1, s.shape[-1])),
            None if of_bias is None else summed.sum(tuple(range(summed.ndim - 1))),
        ]


class _ConvolutionCall(_Call):
    def output(self, s: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        result: torch.Tensor = _CONVOLUTIONS[weight.ndim - 2](s, weight, bias, *self.further)
        return result

    def input_gradient(self, gradient: torch.Tensor, s: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        (found, _, _) = self._backward(gradient, s, weight, True, False, False)
        assert found is not None
        return found

    def gradients(
        self, gradient: torch.Tensor, s: torch.Tensor, weight: torch.Tensor, learning: Learning
    ) -> list[torch.Tensor | None]:
        return self._backward(gradient, s, weight, False, *(each is not None for each in learning))[1:]

    def _backward(
        self, gradient: torch.Tensor, s: torch.Tensor, weight: torch.Tensor, *wanted: bool
    ) -> list[torch.Tensor | None]:
        """The gradients of input, weight and bias; None for those that are not wanted."""
        stride, padding, dilation, groups = self.further
        found: tuple[torch.Tensor | None, ...] = torch.ops.aten.convolution_backward(
            gradient,
            s,
            weight,
            None if self.bias is None else self.bias.shape,
            stride,
            padding,
            dilation,
            False,
            [0] * (weight.ndim - 2),
            groups,
            wanted,
        )
        return [each if want else None for each, want in zip(found, wanted, strict=True)]


_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


@dataclass(slots=True)
class _Noted:
    """A call of a layer to which the backward pass has come, with its input and the gradient of its output."""

    call: _Call
    s: torch.Tensor
    gradient: torch.Tensor
    versions: tuple[int, int]
    """Of the input and of the gradient when the pass came to the layer."""
    learning: Learning
    """As they were then."""

    def gradients(self) -> Gradients:
        """Those of the parameters that learn.

        Raises RuntimeError where the input was overwritten, as autograd does before the pass comes to a layer, or the
        gradient of the output.
        """
        if (self.s._version, self.gradient._version) != self.versions:
            raise RuntimeError(
                "the input of a layer, or the gradient of its output, was overwritten in place before the gradient of "
                "its weights was computed, perhaps by a pass of a later micro-batch; let the block give the layer a "
                "tensor that nothing overwrites, or choose a schedule that does not split backward passes"
            )
        found = self.call.gradients(self.gradient, self.s, self.call.weight.to(self.s.dtype), self.learning)
        pairs = zip(self.learning, found, strict=True)
        return [(parameter, each) for parameter, each in pairs if parameter is not None and each is not None]


class _Apart(torch.autograd.Function):
    """A layer whose backward may leave the gradients of its weights for later."""

    @staticmethod
    def forward(
        ctx: Any, s: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, call: _Call
    ) -> torch.Tensor:
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(s, weight)
        return call.output(s, weight.to(s.dtype), None if bias is None else bias.to(s.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if gradient is None:
            return None, None, None, None
        s, weight = ctx.saved_tensors
        call: _Call = ctx.call
        weight = weight.to(s.dtype)
        to_input = call.input_gradient(gradient, s, weight)
        later = call.split.later(call.parameters)
        if later is not None:
            later.note(_Noted(call, s.detach(), gradient, (s._version, gradient._version), call.learning()))
            return to_input, None, None, None
        return to_input, *call.gradients(gradient, s, weight, call.learning()), None


_Torchs = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
_TYPES = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def _is_plain(layer: _Torchs) -> bool:
    """Whether the layer computes what torch's does, and has weights that nothing computes."""
    (torchs,) = (each for each in _TYPES if isinstance(layer, each))
    named = ("__call__", "forward", "_conv_forward", "__getattr__", "weight", "bias")
    inherits = all(getattr(type(layer), name, None) is getattr(torchs, name, None) for name in named)
    pads = isinstance(layer, nn.Linear) or (layer.padding_mode == "zeros" and not isinstance(layer.padding, str))
    return inherits and pads and "forward" not in layer.__dict__


def _can_wait(weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Whether the weight learns, and each of the two that does is a parameter without hooks of a user."""
    learning = [each for each in (weight, bias) if each is not None and each.requires_grad]
    return weight.requires_grad and all(
        isinstance(each, nn.Parameter) and accelerator.is_plain(each) and not _is_hooked(each) for each in learning
    )


def _is_hooked(parameter: nn.Parameter) -> bool:
    hooks = (parameter._backward_hooks or {}).values()
    return bool(parameter._post_accumulate_grad_hooks) or not all(isinstance(hook, _Watch) for hook in hooks)
