"""PowerSGD in torch's DDP."""

from __future__ import annotations

from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from alray.runtime.channel.ddp_compression import DdpCompression


class PowerSgdDdp(DdpCompression):
    """torch's hook.

    Checkpoints do not contain its state. It belongs to DDP's buckets of gradients, and a resumed run has other buckets.
    So it starts from the beginning again after a resume.
    """

    def __init__(self, *, rank: int, start_iteration: int, seed: int) -> None:
        """
        Args:
            rank: columns of the factors.
            start_iteration: the first mini-batch that is compressed.
            seed: for the first factors, which all ranks draw alike.
        """
        super().__init__(seed=seed)
        self._state = PowerSGDState(
            process_group=None,
            matrix_approximation_rank=rank,
            start_powerSGD_iter=start_iteration,
            random_seed=seed % 2**32,
        )

    def register(self, network: DistributedDataParallel) -> None:
        network.register_comm_hook(self._state, powerSGD_hook)

    def bytes_summed(self, steps: int, elements: int, element_bytes: int) -> int:
        whole: int = min(steps, self._state.start_powerSGD_iter)
        return (whole * elements + int(self._state.compression_stats()[2])) * element_bytes
