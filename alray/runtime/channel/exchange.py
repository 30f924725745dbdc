"""What the ranks exchange in the communication thread while the stage continues to compute."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Generic, TypeVar

import torch

from alray.core import accelerator
from alray.runtime.channel.all_reduce import AllReduce

R = TypeVar("R")
_CPU = torch.device("cpu")


class CommunicationThread(ThreadPoolExecutor):
    """The single thread in which all exchanges of a stage communicate. Its current device is that of the stage: a
    thread has none at first, and would set up the first GPU for itself.

    The thread runs them in the order of the `start` calls. That order is the same on every rank, so no two ranks can
    wait for each other in different exchanges.
    """

    def __init__(self, device: torch.device = _CPU) -> None:
        begin = partial(accelerator.use, device) if accelerator.is_accelerator(device) else None
        super().__init__(max_workers=1, thread_name_prefix="communication", initializer=begin)
        self.stream = accelerator.own_stream(device)
        """Of a GPU, so that the stage's computation continues: one for all exchanges, for CUDA has 32 of a device."""


class Exchange(Generic[R]):
    """One exchange after another: a subclass begins each in `start`, and `wait` ends it."""

    def __init__(self, over: AllReduce, thread: CommunicationThread) -> None:
        """
        Args:
            thread: that of the stage, in which other operations on the same group run, too.
        """
        self.communication_s = 0.0
        """Seconds that the communication thread spent compressing, sending and waiting for peers."""
        self._over = over
        self._thread = thread
        self._under_way: Future[R] | None = None

    def _ended(self) -> R:
        """Wait for the end of the exchange. Raises `ChannelError` if a peer was lost."""
        assert self._under_way is not None, "`start` comes before `wait`"
        under_way, self._under_way = self._under_way, None
        return under_way.result()

    @property
    def bytes_sent(self) -> int:
        """Payload bytes that this rank has sent so far."""
        return self._over.bytes_sent

    @property
    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._under_way is None or self._under_way.done()
