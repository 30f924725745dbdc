"""Gradients that are sent and summed in 16 bits."""

from __future__ import annotations

from typing import final

import torch

from alray.runtime.channel.all_reduce import AllReduce
from alray.runtime.channel.compression import Compression


class Half(Compression):
    """Rounds gradients to `type_sent`, sums them in that type and converts the sum back: half of the bytes of float32.

    Every addition rounds, so the error grows with the number of ranks. There is no error feedback.
    """

    type_sent: torch.dtype

    @final
    def reduce(self, flat: torch.Tensor, weight: float, over: AllReduce) -> None:
        rounded = flat.to(self.type_sent)
        over.sum(rounded)
        flat.copy_(rounded)
