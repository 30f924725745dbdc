"""The interface of a compression of gradients in torch's DistributedDataParallel (DDP), for the engine `ray_train`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, final

from torch.nn.parallel import DistributedDataParallel

from alray.config.made import class_of, no_user_code
from alray.config.sections.compression import COMPRESSIONS, CompressionSection

_HALF_BYTES = 2


class DdpCompression(ABC):
    """The compression of the gradients of a whole network on one rank."""

    def __init__(self, *, seed: int) -> None:
        """A subclass also takes the further keys of the spec's section, by name.

        Args:
            seed: of random numbers; the same on every rank.
        """
        self._seed = seed

    @abstractmethod
    def register(self, network: DistributedDataParallel) -> None:
        """Give DDP the hook that compresses gradients."""

    @abstractmethod
    def bytes_summed(self, steps: int, elements: int, element_bytes: int) -> int:
        """Return the bytes that a rank has given to be summed: DDP reports none.

        Args:
            steps: mini-batches since `register`.
            elements: of all gradients of a mini-batch.
            element_bytes: bytes of one of them.
        """


class HalfDdp(DdpCompression):
    """Gradients are sent and summed in 16 bits, by a hook of torch."""

    hook: ClassVar[Any]
    """One of `torch.distributed.algorithms.ddp_comm_hooks`, as a static method."""

    @final
    def register(self, network: DistributedDataParallel) -> None:
        network.register_comm_hook(None, self.hook)

    @final
    def bytes_summed(self, steps: int, elements: int, element_bytes: int) -> int:
        return steps * elements * _HALF_BYTES


def make_ddp_compression(section: CompressionSection, *, seed: int) -> DdpCompression:
    """The compression that a spec names."""
    kind: type[DdpCompression] = class_of(
        COMPRESSIONS,
        section,
        DdpCompression,
        no_user_code,
        key="replicas.compression",
        implementation=section.by_ddp,
    )
    return kind(seed=seed, **section.fields)
