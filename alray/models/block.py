"""The class that users' blocks may derive from."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import nn

from alray.models.shape import Shape


class Block(nn.Module):
    """A block of the user: the encoder of a component, `block: python:my_blocks.Mine`.

    Any `nn.Module` that is made and called like this one is a block; to derive from it is a way to say so. What it
    gives may differ in shape from what it gets; alray finds the shapes by calling it on torch's meta device. It must
    not change its input in place, and what it remembers from one mini-batch to the next must be a buffer.
    """

    def __init__(self, input: Shape, **fields: Any) -> None:
        """
        Args:
            input: shape of one sample.
            fields: the other keys of its entry in `model.components`.
        """
        super().__init__()

    @abstractmethod
    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Args:
            s: [N, *input].
            mask: [N, positions] bool, True where a text has a word; None where there is none, or all are words.

        Returns:
            [N, *output], the same output shape for every sample.
        """
