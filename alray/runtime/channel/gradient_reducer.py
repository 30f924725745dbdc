"""Averages the gradients of one component over the replicas while the stage continues to compute."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import torch

from alray.core import accelerator
from alray.runtime.channel.all_reduce import AllReduce
from alray.runtime.channel.compression import Compression
from alray.runtime.channel.gradient_layout import GradientLayout

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


@dataclass
class Exchange(Generic[R]):
    """One exchange after another: a subclass begins each in `start`, and `wait` ends it.

    Attributes:
        thread: that of the stage, in which other operations on the same group run, too.
    """

    over: AllReduce
    thread: CommunicationThread

    def __post_init__(self) -> None:
        self.communication_s = 0.0
        """Seconds that the communication thread spent compressing, sending and waiting for peers."""
        self._under_way: Future[R] | None = None

    def _ended(self) -> R:
        """Wait for the end of the exchange. Raises `ChannelError` if a peer was lost."""
        assert self._under_way is not None, "`start` comes before `wait`"
        under_way, self._under_way = self._under_way, None
        return under_way.result()

    @property
    def bytes_sent(self) -> int:
        """Payload bytes that this rank has sent so far."""
        return self.over.bytes_sent

    @property
    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._under_way is None or self._under_way.done()


@dataclass
class GradientReducer(Exchange[None]):
    """Sums a component's gradients over the ranks as one flat tensor, in parameter order, after the backward pass.

    A rank with k_i of the B samples of the mini-batch uses the weight k_i/B. If every loss is a mean over the rank's
    samples, the result is the gradient of the mean over all B samples (Ye et al., arXiv 2007.11831, section 3).

    Attributes:
        over: an all-reduce that only this component uses.
        thread: that of the stage, which is on the device of the layout.
        may_lack: whether a parameter may have no gradient on any rank. Then the ranks also send each other which
            gradients they have, one byte for each.
    """

    layout: GradientLayout
    compression: Compression
    may_lack: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._flat = self.layout.zeros()
        self._views = self.layout.views(self._flat)
        self._targets: Sequence[torch.Tensor | None] = ()
        self._had_by_any = [True] * len(self.layout.shapes)
        # A component without parameters has nothing on the GPU.
        self._stream = self.thread.stream if accelerator.is_accelerator(self.layout.device) else None

    def start(self, gradients: Sequence[torch.Tensor | None], weight: float, *, weighted: bool = False) -> None:
        """Start averaging `gradients`, given in parameter order, with this rank's share of the mini-batch as `weight`.

        The weights of all ranks sum to one.

        The gradients are copied, so the caller may change them before `wait`. None counts as zeros; a parameter may
        have a gradient on some ranks only.

        Args:
            weighted: whether the gradients are multiplied by them already.
        """
        assert self._under_way is None, "`wait` comes before the next `start`"
        with torch.no_grad():
            for view, gradient in zip(self._views, gradients, strict=True):
                if gradient is None:
                    view.zero_()
                else:
                    torch.mul(gradient, 1.0 if weighted else weight, out=view)
        self._targets = gradients
        packed = None if self._stream is None else accelerator.recorded(self.layout.device)
        self._under_way = self.thread.submit(self._reduce, weight, packed)

    def wait(self, into: Sequence[torch.Tensor | None] | None = None) -> list[torch.Tensor | None]:
        """Return the averaged gradients in parameter order; every rank gets the same bits.

        They are written into the tensors `into`; None: into those that were given to `start`. A new tensor replaces a
        None. Where gradients may be lacking, a None stays that no rank has a gradient for, as in one process; what a
        compression kept of it from earlier steps is still given out. Raises `ChannelError` if a peer was lost during
        the reduction.
        """
        self._ended()
        targets, self._targets = self._targets if into is None else into, ()
        with torch.no_grad():
            return [
                target.copy_(view) if target is not None else view.clone() if had or view.any() else None
                for view, target, had in zip(self._views, targets, self._had_by_any, strict=True)
            ]

    def _reduce(self, weight: float, packed: torch.Event | None) -> None:
        """Run in the communication thread. Grad mode and current stream belong to a thread, so they are set here."""
        began = time.perf_counter()
        with torch.no_grad(), accelerator.within(self._stream):
            if self._stream is not None and packed is not None:
                self._stream.wait_event(packed)
            if self.may_lack:
                own = torch.tensor([target is not None for target in self._targets], dtype=torch.uint8)
                self._had_by_any = self.over.gather(own).any(0).tolist()
            self.compression.reduce(self._flat, weight, self.over)
            if self._stream is not None:
                self._stream.synchronize()
        self.communication_s += time.perf_counter() - began
