"""Sends the largest gradients only. What is left out is kept and added to the next step's gradients."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from alray.parts.compressions.top_k.number import number_sent
from alray.runtime.channel.all_reduce import AllReduce
from alray.runtime.channel.compression import Compression, CompressionState, snapshot
from alray.runtime.channel.gradient_layout import GradientLayout

_ALIGNMENT = 8  # bytes; values of any dtype may start at a multiple of it


class TopKCompression(Compression):
    """Each rank sends the `fraction` of its component's gradients with the largest magnitude, as indices and values.

    Error feedback follows Stich, Cordonnier and Jaggi, "Sparsified SGD with memory" (2018), algorithm 1: what a rank
    does not send is added to its gradients of the next step. The ranks choose different elements, so nothing can be
    added up on the way. Indices (4 bytes each) and values are gathered over the routes of the all-reduce, and every
    rank adds up the rows of all ranks in rank order. So the bytes that a rank receives grow with n, unlike with an
    all-reduce.
    """

    def __init__(self, layout: GradientLayout, *, fraction: float = 0.01, seed: int = 0) -> None:
        """
        Args:
            fraction: share of the component's gradients, above 0 and at most 1. At least one element is sent.
        """
        self._error = layout.zeros()
        self._num_sent = number_sent(fraction, layout.num_elements)
        self._index_dtype = torch.int32 if layout.num_elements <= torch.iinfo(torch.int32).max else torch.int64

    def reduce(self, flat: torch.Tensor, weight: float, over: AllReduce) -> None:
        if self._num_sent == 0:
            return
        self._error += flat
        chosen = self._error.abs().topk(self._num_sent, sorted=False).indices
        own = self._packed(chosen, self._error[chosen])
        self._error[chosen] = 0
        flat.zero_()
        for row in over.gather(own):
            indices, values = self._unpacked(row)
            # The indices of one rank are all different, so the order within a row does not matter.
            flat.index_add_(0, indices, values)

    @property
    def _index_bytes(self) -> int:
        return -(-self._num_sent * self._index_dtype.itemsize // _ALIGNMENT) * _ALIGNMENT

    def _packed(self, indices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Pack indices, then values, as bytes."""
        value_bytes = values.numel() * values.element_size()
        packed = torch.zeros(self._index_bytes + value_bytes, dtype=torch.uint8, device=values.device)
        packed[: self._num_sent * self._index_dtype.itemsize] = indices.to(self._index_dtype).view(torch.uint8)
        packed[self._index_bytes :] = values.view(torch.uint8)
        return packed

    def _unpacked(self, packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        indices = packed[: self._num_sent * self._index_dtype.itemsize].view(self._index_dtype)
        return indices, packed[self._index_bytes :].view(self._error.dtype)

    def state_dict(self) -> CompressionState:
        return {"error": snapshot(self._error)}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        self._error.copy_(state["error"])
