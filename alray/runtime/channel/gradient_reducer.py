"""Averages the gradients of one component over the replicas while the stage continues to compute."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import torch

from alray.core import accelerator
from alray.runtime.channel.all_reduce import AllReduce
from alray.runtime.channel.compression import Compression, CompressionState
from alray.runtime.channel.exchange import CommunicationThread, Exchange
from alray.runtime.channel.gradient_layout import GradientLayout


class GradientReducer(Exchange[None]):
    """Sums a component's gradients over the ranks as one flat tensor, in parameter order, after the backward pass.

    A rank with k_i of the B samples of the mini-batch uses the weight k_i/B. If every loss is a mean over the rank's
    samples, the result is the gradient of the mean over all B samples (Ye et al., arXiv 2007.11831, section 3).
    """

    def __init__(
        self,
        layout: GradientLayout,
        *,
        over: AllReduce,
        compression: Compression,
        thread: CommunicationThread,
        may_lack: bool = False,
    ) -> None:
        """
        Args:
            over: an all-reduce that only this component uses.
            thread: that of the stage, which is on the device of the layout.
            may_lack: whether a parameter may have no gradient on any rank. Then the ranks also send each other which
                gradients they have, one byte for each.
        """
        super().__init__(over, thread)
        self._layout = layout
        self._compression = compression
        self._flat = layout.zeros()
        self._views = layout.views(self._flat)
        self._targets: Sequence[torch.Tensor | None] = ()
        self._may_lack = may_lack
        self._had_by_any = [True] * len(layout.shapes)
        # A component without parameters has nothing on the GPU.
        self._stream = thread.stream if accelerator.is_accelerator(layout.device) else None

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
        packed = None if self._stream is None else accelerator.recorded(self._layout.device)
        self._under_way = self._thread.submit(self._reduce, weight, packed)

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

    def state_dict(self) -> CompressionState:
        """Return the compression's state between two steps. It differs between ranks, so each rank writes a
        file of its own."""
        return self._compression.state_dict()

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore a state. Raises `CheckpointError` if it comes from another compression, setting or model."""
        self._compression.load_state_dict(state)

    def _reduce(self, weight: float, packed: torch.Event | None) -> None:
        """Run in the communication thread. Grad mode and current stream belong to a thread, so they are set here."""
        began = time.perf_counter()
        with torch.no_grad(), accelerator.within(self._stream):
            if self._stream is not None and packed is not None:
                self._stream.wait_event(packed)
            if self._may_lack:
                own = torch.tensor([target is not None for target in self._targets], dtype=torch.uint8)
                self._had_by_any = self._over.gather(own).any(0).tolist()
            self._compression.reduce(self._flat, weight, self._over)
            if self._stream is not None:
                self._stream.synchronize()
        self.communication_s += time.perf_counter() - began
