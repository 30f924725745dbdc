"""The memory of gradients, and their norms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn


def gradient_norms(parameters: Sequence[nn.Parameter]) -> torch.Tensor:
    """The norm of the gradient of each of these parameters, 0 where there is none: `[parameters]`."""
    none = parameters[0].new_zeros(())
    gradients = [none if each.grad is None else each.grad for each in parameters]
    return torch.stack([torch.linalg.vector_norm(each) for each in gradients])


def clip(parameters: Sequence[nn.Parameter], largest: float, norms: torch.Tensor) -> None:
    """Scale the gradients of these parameters as `torch.nn.utils.clip_grad_norm_` does with all those whose norms these
    are, to the last bit where each parameter has a gradient.

    Args:
        largest: norm of them together.
        norms: as `gradient_norms` gives them.
    """
    total = torch.linalg.vector_norm(norms.to(parameters[0].device, parameters[0].dtype))
    nn.utils.clip_grads_with_norm_(parameters, largest, total, foreach=False)


def separate_gradients(parameters: Iterable[nn.Parameter], besides: Iterable[torch.Tensor] = ()) -> None:
    """Copy each gradient that overlaps with that of an earlier parameter, or lies in the memory of one of `besides`.

    Autograd keeps the tensor that comes to a parameter as its gradient. Where a block adds parameters to one sample by
    views, such as `s + self.positions.unsqueeze(0)`, their gradients, and the one that goes on down, are views of one
    tensor. A gradient may be a part of it: that of a token that is one of the rows. Later passes add to gradients in
    place, and an update divides and clips them in place.
    """
    others = {each.untyped_storage()._cdata for each in besides}
    found = [
        (parameter, gradient, gradient.untyped_storage()._cdata)
        for parameter in parameters
        if (gradient := parameter.grad) is not None and gradient.layout == torch.strided
    ]
    memories = {memory for _, _, memory in found}
    if len(memories) == len(found) and others.isdisjoint(memories):  # nearly always, and the ranges take longer
        return
    taken: dict[int, list[range]] = {}
    for parameter, gradient, memory in found:
        own = _bytes_of(gradient)
        before = taken.setdefault(memory, [])
        if memory in others or any(own.start < other.stop and other.start < own.stop for other in before):
            parameter.grad = gradient.clone()
        else:
            before.append(own)


def _bytes_of(tensor: torch.Tensor) -> range:
    """From the first byte of a tensor to its last one, within its memory."""
    first, size = int(tensor.storage_offset()), tensor.element_size()
    if not tensor.numel():
        return range(0)
    last = first + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return range(first * size, (last + 1) * size)
