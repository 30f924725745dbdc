"""QSGD: gradients that are rounded at random to a few levels."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from alray.core.randomness.seeds import derive_seed
from alray.models.levels import pack_codes, unpack_codes
from alray.runtime.channel.all_reduce import AllReduce
from alray.runtime.channel.compression import Compression, CompressionState
from alray.runtime.channel.gradient_layout import GradientLayout

_ALIGNMENT = 8  # bytes; the message of each rank starts at a multiple of it, where values of any dtype may start


class QsgdCompression(Compression):
    """From Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD" (2017, arXiv 1610.02132), section 3.

    A component's gradients are cut into buckets. A bucket with the largest magnitude m is sent as m and, for each
    gradient g, one of the 2s + 1 levels -m, ..., -m/s, 0, m/s, ..., m, with s = 2^(bits - 1) - 1. g is rounded up or
    down at random, so that its mean over many draws is g: nothing is lost on average, and there is no error feedback.
    The paper's experiments use the largest magnitude too, its theory the Euclidean norm. Levels have `bits` bits each,
    not the paper's code of varying length.

    Each rank has its own levels, so nothing can be added up on the way. Messages are gathered over the routes of the
    all-reduce, and every rank adds up those of all ranks in rank order. So the bytes that a rank receives grow with n,
    unlike with an all-reduce. Random numbers are drawn on the CPU from (seed, rank, number of the reduction).
    """

    kind = "qsgd"

    def __init__(self, layout: GradientLayout, *, bits: int = 8, bucket: int = 512, seed: int = 0) -> None:
        """
        Args:
            bits: 2, 4 or 8, of each gradient.
            bucket: gradients that share a scale; the last ones may be fewer.
        """
        self._elements = layout.num_elements
        self._dtype = layout.dtype
        self._bits = bits
        self._bucket = bucket
        self._levels = 2 ** (bits - 1) - 1
        self._buckets = -(-self._elements // bucket)
        self._seed = seed
        self._iteration = 0

    def reduce(self, flat: torch.Tensor, weight: float, over: AllReduce) -> None:
        if self._elements == 0:
            return
        generator = torch.Generator().manual_seed(derive_seed(self._seed, "qsgd", over.rank, self._iteration))
        self._iteration += 1
        own = self._packed(flat, torch.rand(self._elements, generator=generator).to(flat.device))
        flat.zero_()
        for row in over.gather(own):
            flat += self._unpacked(row)

    @property
    def _scale_bytes(self) -> int:
        return self._buckets * self._dtype.itemsize

    def _packed(self, flat: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Pack scales, then levels, as bytes.

        Args:
            draws: uniform in 0..1.
        """
        scales = self._in_buckets(flat).abs().amax(1)
        # A scale that is not finite is sent as it is, so that the sum is not finite either.
        divisor = torch.where(scales > 0, scales, torch.ones_like(scales)).repeat_interleave(self._bucket)
        levels = (flat / divisor[: self._elements] * self._levels + draws).floor_().clamp_(max=self._levels)
        packed_codes = pack_codes((levels + self._levels).to(torch.uint8).unsqueeze(0), self._bits)[0]
        length = self._scale_bytes + packed_codes.numel()
        packed = torch.zeros(-(-length // _ALIGNMENT) * _ALIGNMENT, dtype=torch.uint8, device=flat.device)
        packed[: self._scale_bytes] = scales.view(torch.uint8)
        packed[self._scale_bytes : length] = packed_codes
        return packed

    def _unpacked(self, packed: torch.Tensor) -> torch.Tensor:
        scales = packed[: self._scale_bytes].view(self._dtype)
        per_byte = 8 // self._bits
        packed_codes = packed[self._scale_bytes : self._scale_bytes + -(-self._elements // per_byte)]
        codes = unpack_codes(packed_codes.unsqueeze(0), self._bits, self._elements)[0]
        step = (scales / self._levels).repeat_interleave(self._bucket)[: self._elements]
        values: torch.Tensor = (codes.to(self._dtype) - self._levels) * step
        return values

    def _in_buckets(self, flat: torch.Tensor) -> torch.Tensor:
        """Shape (buckets, elements of a bucket), filled up with zeros."""
        return torch.nn.functional.pad(flat, (0, -self._elements % self._bucket)).view(-1, self._bucket)

    def state_dict(self) -> CompressionState:
        return {"iteration": torch.tensor(self._iteration)}

    def _load(self, state: Mapping[str, torch.Tensor]) -> None:
        self._iteration = int(state["iteration"])
