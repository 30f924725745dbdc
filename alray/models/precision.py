"""Mixed precision: matrix products and convolutions in bfloat16, everything that stays in float32.

Weights, gradients, optimizers, losses and what crosses the boundary of a part are float32. So edges, checkpoints and
all-reduces are those of a run in float32. No loss needs scaling: bfloat16 has the range of float32. torch.autocast
chooses the operations (Micikevicius et al., "Mixed Precision Training", ICLR 2018). torch's recurrent layers stay in
float32: on a GPU autocast would have cuDNN compute them in float16, which has not that range. So do its recurrent
cells, whose states pass through many steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from alray.core import accelerator
from alray.core.compat import tree_leaves
from alray.core.errors import PlanError

LOWERED = {"bf16": torch.bfloat16}
"""The values of `run.precision` that mean mixed precision, and the type in which they compute."""
_FULL_BYTES = torch.float32.itemsize


def require_precision(
    precision: str, device: torch.device, hint: str = "set run.precision=float32, or use a newer GPU"
) -> None:
    """Raise PlanError if a device cannot compute as `run.precision` says.

    Args:
        device: of a GPU, the current one.
        hint: what helps.
    """
    lowered = precision in LOWERED and accelerator.is_accelerator(device)
    if lowered and not accelerator.knows_bfloat16(device):
        raise PlanError(
            f"the GPU {accelerator.name(device)} does not know bfloat16",
            key="run.precision",
            hint=hint,
        )


def lower(part: nn.Module, dtype: torch.dtype) -> None:
    """Have the part compute in mixed precision. Its weights, their names and its output's type stay as they are."""
    for module in part.modules():
        if isinstance(module, nn.RNNBase | nn.RNNCellBase):
            module.__class__ = _recurrent(type(module))  # type: ignore[assignment, arg-type]
    part.__class__ = _lowered(type(part), dtype)  # type: ignore[arg-type]


def restore(module: nn.Module) -> None:
    """Undo `lower` for a module and all that it holds."""
    for part in module.modules():
        while (whole := getattr(type(part), "alray_whole", None)) is not None:
            part.__class__ = whole


@cache
def _lowered(whole: type[nn.Module], dtype: torch.dtype) -> type[nn.Module]:
    """The same class of modules, whose forward pass is in mixed precision.

    A class, unlike a function put into the module, stays right in a copy of the module.
    """

    def forward(self: Any, *arguments: Any, **named: Any) -> Any:
        given = [value for value in tree_leaves((arguments, named)) if isinstance(value, torch.Tensor)]
        device = given[0].device.type if given else "meta"
        if device == "meta":  # nothing is computed, and torch.autocast does not know it
            return whole.forward(self, *arguments, **named)
        with torch.autocast(device, dtype):
            return _in_full(whole.forward(self, *arguments, **named))

    return _with_forward(whole, forward, _lowered, dtype)


@cache
def _recurrent(whole: type[nn.Module]) -> type[nn.Module]:
    """The same class of recurrent layers or cells, which stay in float32 within a part in mixed precision."""

    def forward(self: Any, *arguments: Any, **named: Any) -> Any:
        device = next(self.parameters()).device.type
        if device == "meta":
            return whole.forward(self, *arguments, **named)
        with torch.autocast(device, enabled=False):
            return whole.forward(self, *_in_full(arguments), **{name: _in_full(each) for name, each in named.items()})

    return _with_forward(whole, forward, _recurrent)


def _with_forward(whole: type[nn.Module], forward: Any, *made_by: Any) -> type[Any]:
    """
    Args:
        made_by: the function that makes this class of `whole`, and its further arguments.
    """
    members = {"forward": forward, "alray_whole": whole, "__module__": whole.__module__}
    return type(whole.__name__, (whole,), members | {"__reduce__": _reduced, "alray_made_by": made_by})


def _reduced(part: Any) -> tuple[Any, ...]:
    """What pickle and copies take of a module of such a class: the class that it was made of, and how it was made."""
    kind, made_by = type(part), []
    while (whole := getattr(kind, "alray_whole", None)) is not None:
        made_by.append(kind.alray_made_by)
        kind = whole
    return _like, (kind, made_by[::-1]), part.__getstate__()


def _like(kind: type[Any], made_by: Sequence[tuple[Any, ...]]) -> nn.Module:
    for make, *arguments in made_by:
        kind = make(kind, *arguments)
    module: nn.Module = object.__new__(kind)
    return module


def _in_full(value: Any) -> Any:
    """The value in float32: a tensor, packed rows, or tensors in tuples (as `hands_on_state` gives them), lists and
    dictionaries."""
    if isinstance(value, PackedSequence):
        return value.float()
    if isinstance(value, tuple):
        return tuple(_in_full(each) for each in value)
    if isinstance(value, list):
        return [_in_full(each) for each in value]
    if isinstance(value, dict):
        return {name: _in_full(each) for name, each in value.items()}
    narrow = isinstance(value, torch.Tensor) and value.is_floating_point() and value.element_size() < _FULL_BYTES
    return value.float() if narrow else value
