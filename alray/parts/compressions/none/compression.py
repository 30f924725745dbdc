"""No compression."""

from __future__ import annotations

import torch

from alray.runtime.channel.all_reduce import AllReduce
from alray.runtime.channel.compression import Compression


class Uncompressed(Compression):
    """Gradients are summed unchanged."""

    def reduce(self, flat: torch.Tensor, weight: float, over: AllReduce) -> None:
        over.sum(flat)
