"""Gradients summed in a type of 16 bits."""

from __future__ import annotations

from typing import final

import torch

from alray.channel.all_reduce.algorithm import AllReduce
from alray.channel.compression.compression import Compression


class _Half(Compression):
    """Rounds to `type_sent`, sums in it, and turns the sum back into the gradients' own type: half of float32's bytes.

    Every addition rounds, so the error of the sum grows with the ranks; nothing of it is kept for the next step.
    """

    type_sent: torch.dtype

    @final
    def reduce(self, flat: torch.Tensor, weight: float, over: AllReduce) -> None:
        rounded = flat.to(self.type_sent)
        over.sum(rounded)
        flat.copy_(rounded)


class Float16(_Half):
    """11 bits of precision; beyond 65504 a gradient becomes infinite, below 3e-8 it becomes zero.

    Gradients were multiplied by the weights before: it is their average, not their plain sum, that must be in range.
    """

    kind = "fp16"
    type_sent = torch.float16


class BFloat16(_Half):
    """8 bits of precision over the whole range of float32."""

    kind = "bf16"
    type_sent = torch.bfloat16
