"""The gradients of one component on one rank, averaged over the replicas while the stage goes on."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from alray.channel.all_reduce.algorithm import AllReduce
from alray.channel.compression.compression import Compression, State
from alray.channel.compression.layout import Layout
from alray.errors import ChannelError


def communication_thread() -> ThreadPoolExecutor:
    """The one thread in which all reducers of a stage communicate.

    It takes their reductions in the order of `start`, which is the same on all ranks: so what goes over the wires is in
    the same order everywhere, and no two ranks wait for each other in different reductions.
    """
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="communication")


class GradientReducer:
    """One flat reduction of a component's gradients in parameter order, started after its backward.

    With weight k_i/B on a rank that had k_i of the B samples of the mini-batch, and losses that are means over a rank's
    samples, the result is the gradient of the mean over all B (reference: Ye et al., arXiv 2007.11831, section 3).
    """

    def __init__(
        self, layout: Layout, *, over: AllReduce, compression: Compression, thread: ThreadPoolExecutor
    ) -> None:
        """over: of a process group that only this component uses. thread: `communication_thread()` of the stage."""
        self.communication_s = 0.0
        """Seconds in the communication thread: compressing, sending, waiting for peers."""
        self.waited_s = 0.0
        """Seconds `wait` had to wait: what communication was not hidden behind computation."""
        self._layout, self._over, self._compression, self._thread = layout, over, compression, thread
        self._flat = layout.zeros()
        self._views = layout.views(self._flat)
        self._targets: Sequence[torch.Tensor | None] = ()
        self._under_way: Future[None] | None = None
        # On a GPU the thread works beside the stage's own stream, so that computation goes on.
        self._stream = torch.cuda.Stream(layout.device) if layout.device.type == "cuda" else None

    @property
    def bytes_sent(self) -> int:
        """Payload this rank has sent so far."""
        return self._over.bytes_sent

    @property
    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._under_way is None or self._under_way.done()

    def start(self, gradients: Sequence[torch.Tensor | None], weight: float) -> None:
        """Begin to average: gradients in parameter order, and this rank's share of the mini-batch.

        The weights of all ranks sum to one. The gradients are copied, and may change until `wait`. None counts as
        zeros: whether a parameter has a gradient may differ from rank to rank. Raises `ChannelError` where the last
        reduction was not waited for, or the gradients are not those of the layout.
        """
        if self._under_way is not None:
            raise ChannelError(
                "a component's gradients are still being averaged", mend="wait for them before the next backward"
            )
        shapes = tuple(None if gradient is None else gradient.shape for gradient in gradients)
        if len(shapes) != len(self._layout.shapes) or any(
            shape not in (None, own) for shape, own in zip(shapes, self._layout.shapes, strict=True)
        ):
            raise ChannelError(
                f"gradients of shapes {[shape and tuple(shape) for shape in shapes]} are not those of the component, "
                f"{[tuple(shape) for shape in self._layout.shapes]}",
                mend="pass one gradient, or None, for each parameter in order",
            )
        with torch.no_grad():
            for view, gradient in zip(self._views, gradients, strict=True):
                if gradient is None:
                    view.zero_()
                else:
                    torch.mul(gradient, weight, out=view)
        self._targets = gradients
        packed = None
        if self._stream is not None:
            packed = torch.cuda.Event()
            packed.record(torch.cuda.current_stream(self._layout.device))
        self._under_way = self._thread.submit(self._reduce, weight, packed)

    def wait(self) -> list[torch.Tensor]:
        """The averaged gradients in parameter order, the same bits on every rank.

        They are written into the tensors given to `start`; where None was given, a new tensor takes its place. Raises
        the `ChannelError` of the reduction where a peer was lost, and one where nothing was started.
        """
        if self._under_way is None:
            raise ChannelError("no gradients are being averaged", mend="start a reduction before waiting for it")
        began = time.perf_counter()
        try:
            self._under_way.result()
        finally:
            self._under_way = None
            targets, self._targets = self._targets, ()
            self.waited_s += time.perf_counter() - began
        with torch.no_grad():
            return [
                view.clone() if target is None else target.copy_(view)
                for view, target in zip(self._views, targets, strict=True)
            ]

    def state_dict(self) -> State:
        """The compression's state between two steps. It differs from rank to rank: a file for each."""
        return self._compression.state_dict()

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Raises `CheckpointError` where the state is of another compression, setting or model."""
        self._compression.load_state_dict(state)

    def _reduce(self, weight: float, packed: torch.cuda.Event | None) -> None:
        """In the communication thread. Grad mode and the current stream are a thread's own."""
        began = time.perf_counter()
        with torch.no_grad(), torch.cuda.stream(self._stream):
            if self._stream is not None and packed is not None:
                self._stream.wait_event(packed)
            self._compression.reduce(self._flat, weight, self._over)
            if self._stream is not None:
                self._stream.synchronize()
        self.communication_s += time.perf_counter() - began
