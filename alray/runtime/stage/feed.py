"""The mini-batches of stage 0 on its device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch

from alray.core import accelerator
from alray.data.batches import Batch
from alray.models.encoder import Tensors


def feed(
    batches: Iterable[Batch], given: Callable[[Batch], Tensors], stream: torch.Stream | None
) -> Iterator[tuple[Batch, Tensors]]:
    """Each mini-batch, with what the first component takes of it and its `labels`, on the device.

    A GPU copies the next mini-batch while it computes on this one. So one mini-batch is read ahead.

    Args:
        given: takes a mini-batch to its inputs and labels on the device (`Batch.with_labels`).
        stream: of the GPU, for these copies; None: the device is a CPU.
    """
    if stream is None:
        for batch in batches:
            yield batch, given(batch)
        return
    ahead: _CopyToGpu | None = None
    for batch in batches:
        before, ahead = ahead, _CopyToGpu.begin(batch, given, stream)
        if before is not None:
            yield before.batch, before.ready()
    if ahead is not None:
        yield ahead.batch, ahead.ready()


@dataclass(frozen=True)
class _CopyToGpu:
    """A mini-batch on its way to a GPU. It keeps the host memory from which the GPU copies."""

    batch: Batch
    tensors: Tensors
    done: torch.Event

    @classmethod
    def begin(cls, batch: Batch, given: Callable[[Batch], Tensors], stream: torch.Stream) -> _CopyToGpu:
        with accelerator.within(stream):
            return cls(batch, given(batch), accelerator.recorded(stream.device))

    def ready(self) -> Tensors:
        """The tensors for the current stream, which waits for the copy. The host does not wait."""
        current = accelerator.current_stream(self.done.device)
        current.wait_event(self.done)
        for tensor in self.tensors.values():
            tensor.record_stream(current)  # or the copy after the next might write on memory that is still read
        return self.tensors
