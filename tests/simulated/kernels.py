"""What torch leaves to a device: tensors without arguments, mixed precision, and operations that stay in one piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from .order import KIND, MACHINE
from .tensors import SimulatedTensor, copy, held, placed

_LOWERED = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "bmm",
    "mm",
    "linalg_vecdot",
    "baddbmm",
    "addmm",
    "addbmm",
    "linear",
    "matmul",
    "prelu",
    "scaled_dot_product_attention",
    "_native_multi_head_attention",
]
"""The operations that mixed precision lowers, on a CPU."""
_WIDEST = {"cat", "stack", "index_copy"}
"""Those that take the widest type of their arguments."""
_WHOLE = ["lstm.input", "lstm.data", "gru.input", "gru.data", "rnn_tanh.input", "rnn_tanh.data", "rnn_relu.input"]
_WHOLE += ["rnn_relu.data", "scaled_dot_product_attention", "dropout"]
"""Operations that torch divides in one way for a processor, and in another one for other devices."""
_LIBRARIES: list[torch.library.Library] = []
_lowered_weights: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}


def register() -> None:
    """Give torch all of these, once in a process."""
    own, autograd = (
        torch.library.Library("aten", "IMPL", "PrivateUse1"),
        torch.library.Library("aten", "IMPL", "AutogradPrivateUse1"),
    )
    casts, others = (
        torch.library.Library("aten", "IMPL", "AutocastPrivateUse1"),
        torch.library.Library("_", "IMPL", "AutocastPrivateUse1"),
    )
    _LIBRARIES.extend([own, autograd, casts, others])
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        if namespace == "aten" and (func := _overload(rest)) is not None and _makes_tensors(func):
            own.impl(rest, _factory(func))
    own.impl("_copy_from", _copy_from)
    for name in _WHOLE:
        func = _overload(name)
        assert func is not None
        autograd.impl(name, _in_one_piece(func))
    others.fallback(torch.library.fallthrough_kernel)
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCPU"):
        namespace, _, rest = name.partition("::")
        if namespace == "aten" and (func := _overload(rest)) is not None:
            casts.impl(rest, _cast(func, rest.partition(".")[0]))


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


def _makes_tensors(func: Any) -> bool:
    arguments = func._schema.arguments
    names = {argument.name for argument in arguments}
    return {"device", "layout"} <= names and not any("Tensor" in str(argument.type) for argument in arguments)


def _factory(func: Any) -> Callable[..., Any]:
    def made(*args: Any, **kwargs: Any) -> Any:
        index = MACHINE.index_of(kwargs.pop("device", None))
        kwargs.pop("pin_memory", None)
        if func._schema.name == "aten::empty":
            MACHINE.require_room(index, func(*args, **kwargs, device=torch.device("meta")).nbytes)
        tensor = placed(func(*args, **kwargs, device=torch.device("cpu")), index)
        MACHINE.launch(str(func), index, [], [tensor.block])
        return tensor

    return made


def _copy_from(source: torch.Tensor, to: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """What torch calls where it makes a tensor of numbers: there it passes `__torch_dispatch__` by."""
    return copy(to, source, non_blocking)


class _InOnePiece(torch.autograd.Function):
    """An operation with its backward, as the processor computes both."""

    @staticmethod
    def forward(ctx: Any, func: Any, structure: Any, with_grad: bool, *flat: Any) -> Any:
        index = next(each.device.index for each in flat if isinstance(each, SimulatedTensor))
        inner = [
            each.held.detach().requires_grad_(needed) if isinstance(each, SimulatedTensor) else each
            for each, needed in zip(flat, ctx.needs_input_grad[3:], strict=True)
        ]
        args, kwargs = tree_unflatten(inner, structure)
        with torch.set_grad_enabled(with_grad):  # without, the processor may round otherwise
            result = func(*args, **kwargs)
        results, ctx.several = ((result,), False) if isinstance(result, torch.Tensor) else (tuple(result), True)
        outputs = [placed(each.detach().clone(), index) for each in results]
        blocks = [each.block for each in flat if isinstance(each, SimulatedTensor)]
        MACHINE.launch(str(func), index, blocks, [each.block for each in outputs])
        ctx.inner, ctx.results, ctx.blocks, ctx.index = inner, results, blocks, index
        return tuple(outputs) if ctx.several else outputs[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        wanted = [each for each in ctx.inner if isinstance(each, torch.Tensor) and each.requires_grad]
        used = [
            (result, gradient)
            for result, gradient in zip(ctx.results, gradients, strict=True)
            if result.requires_grad and gradient is not None
        ]
        found = iter(
            torch.autograd.grad(
                [result for result, _ in used], wanted, [held(gradient) for _, gradient in used], allow_unused=True
            )
        )
        given = [next(found) if isinstance(each, torch.Tensor) and each.requires_grad else None for each in ctx.inner]
        out = [None if each is None else placed(each, ctx.index) for each in given]
        blocks = [*ctx.blocks, *(gradient.block for _, gradient in used)]
        MACHINE.launch("backward", ctx.index, blocks, [each.block for each in out if each is not None])
        return (None, None, None, *out)


def _in_one_piece(func: Any) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        flat, structure = tree_flatten((args, kwargs))
        return _InOnePiece.apply(func, structure, torch.is_grad_enabled(), *flat)

    return called


# Mixed precision


def _cast(func: Any, name: str) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        if name in _LOWERED:
            dtype = torch.get_autocast_dtype(KIND)
        elif name in _WIDEST:
            dtype = _widest(args)
        else:
            dtype = torch.float32

        def in_type(value: Any) -> Any:
            return _in_type(value, dtype) if isinstance(value, torch.Tensor) else value

        with torch._C._ExcludeDispatchKeyGuard(
            torch._C.DispatchKeySet(torch._C._dispatch_key_parse("AutocastPrivateUse1"))
        ):
            return func(*tree_map(in_type, args), **tree_map(in_type, kwargs))

    return called


def _eligible(value: Any) -> bool:
    return isinstance(value, SimulatedTensor) and value.is_floating_point() and value.dtype != torch.float64


def _widest(args: Any) -> torch.dtype:
    wide = any(each.dtype == torch.float32 for each in tree_flatten(args)[0] if _eligible(each))
    return torch.float32 if wide else torch.get_autocast_dtype(KIND)


def _in_type(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if not _eligible(value) or value.dtype == dtype:
        return value
    kept = value.requires_grad and value.is_leaf and dtype != torch.float32 and torch.is_autocast_cache_enabled()
    if not kept:
        return value.to(dtype)
    if id(value) not in _lowered_weights:
        _lowered_weights[id(value)] = (value, value.to(dtype))
    return _lowered_weights[id(value)][1]


def forget_lowered_weights() -> None:
    """At the end of mixed precision: the weights may change."""
    _lowered_weights.clear()
