"""Gradients that are sent and summed in 16 bits."""

from __future__ import annotations

from typing import final

import torch

from alray.runtime.channel.all_reduce.algorithm import AllReduce
from alray.runtime.channel.compression.compression import Compression


class _Half(Compression):
    """Rounds gradients to `type_sent`, sums them in that type and converts the sum back: half of the bytes of float32.

    Every addition rounds, so the error grows with the number of ranks. There is no error feedback.
    """

    type_sent: torch.dtype

    @final
    def reduce(self, flat: torch.Tensor, weight: float, over: AllReduce) -> None:
        rounded = flat.to(self.type_sent)
        over.sum(rounded)
        flat.copy_(rounded)


class Float16(_Half):
    """11 bits of precision. A gradient above 65504 becomes infinite, one below 3e-8 becomes zero.

    Gradients are multiplied by the ranks' weights before, so only their average must be in range, not their plain sum.
    """

    kind = "fp16"
    type_sent = torch.float16


class BFloat16(_Half):
    """8 bits of precision, the range of float32."""

    kind = "bf16"
    type_sent = torch.bfloat16
