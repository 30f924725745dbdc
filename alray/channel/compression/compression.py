"""What every compression offers: a flat buffer of gradients in, its (approximate) sum over the ranks out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch

from alray.channel.all_reduce.algorithm import AllReduce
from alray.errors import CheckpointError

State = dict[str, torch.Tensor]
"""CPU tensors that nothing else changes: they may be written in the background and load with `weights_only`."""


class Compression(ABC):
    """One compression of one component's gradients on one rank."""

    kind: ClassVar[str]

    @abstractmethod
    def reduce(self, flat: torch.Tensor, weight: float, over: AllReduce) -> None:
        """Replace a rank's gradients, already multiplied by its weight, by their sum over the ranks, in place.

        flat: shape (elements of the component,). weight: the share of this rank; the weights of all ranks sum to one.
        Every rank ends in the same bits.
        """

    def state_dict(self) -> State:
        """What the next step depends on besides its gradients. It differs from rank to rank."""
        return {}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on where `state_dict` was taken. Raises `CheckpointError` where it is of something else."""
        held = self.state_dict()
        for name in sorted(held.keys() | state.keys()):
            if name not in held or name not in state or held[name].shape != state[name].shape:
                raise CheckpointError(
                    f"the checkpoint's state of the gradients' compression does not fit `{self.kind}`: `{name}` "
                    f"is {_shape(state.get(name))} there and {_shape(held.get(name))} here",
                    mend="resume with the compression, its settings and the model of the checkpoint",
                )
        self._load(state)

    def _load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take over a state whose names and shapes are right."""
        return


def _shape(tensor: torch.Tensor | None) -> str:
    return "absent" if tensor is None else f"of shape {tuple(tensor.shape)}"


def snapshot(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of its own on the CPU."""
    return tensor.detach().to("cpu", copy=True)
