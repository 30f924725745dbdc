"""The interface of a compression: it replaces a flat buffer of gradients by its approximate sum over the ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import final

import torch

from alray.config.made import Load, class_of, making, no_user_code
from alray.config.sections.compression import COMPRESSIONS, CompressionSection
from alray.runtime.channel.all_reduce import AllReduce
from alray.runtime.channel.gradient_layout import GradientLayout

CompressionState = dict[str, torch.Tensor]
"""Tensors on the CPU that nothing else changes. They can be written in the background and load with `weights_only`."""
_KEY = "replicas.compression"


class Compression(ABC):
    """The compression of one component's gradients on one rank."""

    def __init__(self, layout: GradientLayout, *, seed: int = 0) -> None:
        """A subclass also takes the further keys of the spec's section, by name.

        Args:
            layout: of the component's gradients.
            seed: of random numbers; the same on every rank, different for every component.
        """
        self._layout = layout
        self._seed = seed

    @abstractmethod
    def reduce(self, flat: torch.Tensor, weight: float, over: AllReduce) -> None:
        """Replace this rank's gradients by their sum over the ranks, in place. Every rank gets the same bits.

        Args:
            flat: shape (elements of the component,), already multiplied by `weight`.
            weight: this rank's share of the mini-batch; the weights of all ranks sum to one.
        """

    def state_dict(self) -> CompressionState:
        """Return the state that the next step needs in addition to its gradients. It differs between ranks."""
        return {}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from a state of this compression with the same settings, for the same layout."""
        return


def snapshot(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of the tensor on the CPU."""
    return tensor.detach().to("cpu", copy=True)


def compression_class(section: CompressionSection, load: Load = no_user_code) -> type[Compression]:
    """The compression that a spec names. Raises SpecError if a class of the user's cannot be loaded."""
    found: type[Compression] = class_of(COMPRESSIONS, section, Compression, load, key=_KEY)
    return found


def make_compression(
    section: CompressionSection, layout: GradientLayout, *, seed: int = 0, load: Load = no_user_code
) -> Compression:
    """The compression that a spec names, for one component (see `Compression`).

    Raises SpecError if a class of the user's cannot be loaded or made.
    """
    kind = compression_class(section, load)
    called = "it is called as Class(layout, seed=seed, **fields) with the further keys of its section"
    with making(f"compression `{section.kind}`", called, key=_KEY, kind=kind):
        return kind(layout, seed=seed, **section.fields)


class Half(Compression):
    """Rounds gradients to `type_sent`, sums them in that type and converts the sum back: half of the bytes of float32.

    Every addition rounds, so the error grows with the number of ranks. There is no error feedback.
    """

    type_sent: torch.dtype

    @final
    def reduce(self, flat: torch.Tensor, weight: float, over: AllReduce) -> None:
        rounded = flat.to(self.type_sent)
        over.sum(rounded)
        flat.copy_(rounded)
