"""No compression in torch's DDP."""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

from alray.runtime.channel.ddp_compression import DdpCompression


class UncompressedDdp(DdpCompression):
    """DDP without a hook."""

    def register(self, network: DistributedDataParallel) -> None:
        return

    def bytes_summed(self, steps: int, elements: int, element_bytes: int) -> int:
        return steps * elements * element_bytes
