"""Copies between the buffers of an edge, in host memory, and the GPU of a stage.

The buffers are pinned, so that a GPU copies by itself and the host need not wait. Who hands a buffer on waits for the
copies first: a neighbour must not read, or write again, what is still being copied. On a CPU nothing is copied.
"""

from __future__ import annotations

import torch

from alray.core import accelerator
from alray.runtime.channel.message import Message


class Pinned:
    """Memory of this process that the device of the stage copies by itself; it must live until `close`."""

    def __init__(self, memory: torch.Tensor, device: torch.device) -> None:
        """
        Args:
            memory: flat, in host memory.
            device: that of the stage; for a CPU nothing is done.
        """
        self._device = device
        self._address = accelerator.pin(memory, device)

    def close(self) -> None:
        """Let the device forget the memory. A second call does nothing."""
        address, self._address = self._address, None
        if address is not None:
            accelerator.unpin(address, self._device)


def to_device(message: Message, device: torch.device) -> None:
    """Give a message that was received the tensors of the stage's device, whose copies may still be running."""
    if not accelerator.is_accelerator(device):
        return
    message.tensors = {name: tensor.to(device, non_blocking=True) for name, tensor in message.tensors.items()}
    message.copied = accelerator.recorded(device)


def await_copies(message: Message) -> None:
    """Before the message's buffer is given back: wait until nothing is copied from it any more."""
    copied, message.copied = message.copied, None
    if copied is not None:
        copied.synchronize()
