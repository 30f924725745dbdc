"""What crosses a component boundary: stopped, and in default strides."""

from __future__ import annotations

import torch


def default_strides(shape: torch.Size) -> tuple[int, ...]:
    """Strides of a freshly allocated row-major tensor of this shape."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def row_major(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in default strides; the tensor itself where it has them already.

    Without this, a partition would change the bits: what travels over an edge arrives row-major, while the same values
    in other strides take another convolution kernel and another dropout mask. `contiguous()` is not enough, because a
    channels-last tensor with 1 x 1 maps counts as contiguous and keeps its strides.
    """
    if tensor.stride() == default_strides(tensor.shape):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def pass_on(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as the next component may see it: detached, row-major."""
    return row_major(tensor.detach())
