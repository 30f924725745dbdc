"""The largest gradients only; what is left out is remembered and added to the next step's."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from alray.channel.all_reduce.algorithm import AllReduce
from alray.channel.compression.compression import Compression, State, snapshot
from alray.channel.compression.layout import Layout

_ALIGNMENT = 8  # bytes: values of any dtype may begin there


class TopK(Compression):
    """Each rank sends the `fraction` of its component's gradients that is largest in magnitude, as indices and values.

    With error feedback, as in Stich, Cordonnier and Jaggi, "Sparsified SGD with memory" (2018), algorithm 1: what a
    rank does not send is added to its gradients of the next step. The ranks choose different elements, so there is
    nothing to add up on the way: indices (4 bytes each) and values travel as they are, gathered over the routes of the
    all-reduce (round the ring, doubling, up and down the tree, through the server), and every rank adds up the rows of
    all ranks in rank order. So what a rank takes in grows with n, unlike with an all-reduce.
    """

    kind = "top_k"

    def __init__(self, layout: Layout, *, fraction: float = 0.01) -> None:
        """fraction: of a component's gradients, above 0 and at most 1; at least one element is sent."""
        self._error = layout.zeros()
        self._num_sent = math.ceil(fraction * layout.num_elements)
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
            # One rank's indices are all different, so nothing depends on the order within a row.
            flat.index_add_(0, indices, values)

    @property
    def _index_bytes(self) -> int:
        return -(-self._num_sent * self._index_dtype.itemsize // _ALIGNMENT) * _ALIGNMENT

    def _packed(self, indices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Indices, then values, as bytes."""
        value_bytes = values.numel() * values.element_size()
        packed = torch.zeros(self._index_bytes + value_bytes, dtype=torch.uint8, device=values.device)
        packed[: self._num_sent * self._index_dtype.itemsize] = indices.to(self._index_dtype).view(torch.uint8)
        packed[self._index_bytes :] = values.view(torch.uint8)
        return packed

    def _unpacked(self, packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        indices = packed[: self._num_sent * self._index_dtype.itemsize].view(self._index_dtype)
        return indices, packed[self._index_bytes :].view(self._error.dtype)

    def state_dict(self) -> State:
        return {"error": snapshot(self._error)}

    def _load(self, state: Mapping[str, torch.Tensor]) -> None:
        self._error.copy_(state["error"])
