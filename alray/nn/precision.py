"""Mixed precision: matrix products and convolutions in bfloat16, everything that stays in float32.

Weights, gradients, optimizers, losses and what crosses the boundary of a part are float32. So edges, checkpoints and
all-reduces are those of a run in float32. No loss needs scaling: bfloat16 has the range of float32. torch.autocast
chooses the operations (Micikevicius et al., "Mixed Precision Training", ICLR 2018).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn

LOWERED = {"bf16": torch.bfloat16}
"""The values of `run.precision` that mean mixed precision, and the type in which they compute."""


def lower(part: nn.Module, dtype: torch.dtype) -> None:
    """Have the part compute in mixed precision. Its weights, their names and its output's type stay as they are."""
    part.__class__ = _lowered(type(part), dtype)  # type: ignore[arg-type]


def restore(module: nn.Module) -> None:
    """Undo `lower` for a module and all that it holds."""
    for part in module.modules():
        whole = getattr(type(part), "alray_whole", None)
        if whole is not None:
            part.__class__ = whole


@cache
def _lowered(whole: type[nn.Module], dtype: torch.dtype) -> type[nn.Module]:
    """The same class of modules, whose forward pass is in mixed precision.

    A class, unlike a function put into the module, stays right in a copy of the module.
    """

    def forward(self: Any, *arguments: Any, **named: Any) -> Any:
        given = [value for value in (*arguments, *named.values()) if isinstance(value, torch.Tensor)]
        device = given[0].device.type if given else "meta"
        if device == "meta":  # nothing is computed, and torch.autocast does not know it
            return whole.forward(self, *arguments, **named)
        with torch.autocast(device, dtype):
            return _in_full(whole.forward(self, *arguments, **named), dtype)

    return type(whole.__name__, (whole,), {"forward": forward, "alray_whole": whole, "__module__": whole.__module__})


def _in_full(output: Any, dtype: torch.dtype) -> Any:
    """What a block gave, in float32: a tensor, or tensors in tuples as `hands_on_state` gives them."""
    if isinstance(output, tuple):
        return tuple(_in_full(each, dtype) for each in output)
    return output.float() if isinstance(output, torch.Tensor) and output.dtype == dtype else output
