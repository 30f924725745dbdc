"""The memory of gradients."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


def separate_gradients(parameters: Iterable[nn.Parameter], besides: Iterable[torch.Tensor] = ()) -> None:
    """Copy each gradient of a parameter that lies in the memory of another one, or of `besides`.

    Autograd keeps the tensor that comes to a parameter as its gradient. Where a block adds parameters to one sample by
    views, such as `s + self.positions.unsqueeze(0)`, all of their gradients, and the one that goes on down, are views
    of one tensor. Later passes add to gradients in place, and an update divides and clips them in place.
    """
    others = {each.untyped_storage()._cdata for each in besides}
    taken: set[tuple[int, int]] = set()
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None or gradient.layout != torch.strided:
            continue
        memory = gradient.untyped_storage()._cdata
        place = memory, int(gradient.storage_offset())
        if memory in others or place in taken:
            parameter.grad = gradient.clone()
        else:
            taken.add(place)
