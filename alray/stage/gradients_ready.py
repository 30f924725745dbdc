"""Which components of a backward pass have their gradients, while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from alray.nn.component import Component

Ready = Callable[[Component], None]
"""Called with a component whose gradients of the mini-batch are complete."""


class GradientsReady:
    """Tells of components one after another, the last one first, as soon as a backward pass has come through them.

    The order is the same on every replica, also where a parameter has a gradient on one and none on another: a
    component is told of only after all above it, and those with a gradient missing at the end.
    """

    def __init__(self, components: Sequence[Component], tell: Ready) -> None:
        """Watches the components' parameters from here on."""
        self._components, self._tell = list(components), tell
        self._trainable = [sum(each.requires_grad for each in component.parameters()) for component in components]
        self._missing: list[int] = []  # gradients of each component still to come; empty outside a pass that is watched
        self._told = 0
        for place, component in enumerate(components):
            for parameter in component.parameters():
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(partial(self._came, place))

    def begin(self) -> None:
        """Before a backward pass that completes the gradients of a mini-batch."""
        self._missing = list(self._trainable)
        self._tell_of(complete=True)  # those without parameters above all others

    def finish(self) -> None:
        """Behind it: tell of those that are left; of all, where the pass was not watched."""
        self._tell_of(complete=False)
        self._missing, self._told = [], 0

    def _came(self, place: int, _: torch.Tensor) -> None:
        if self._missing:
            self._missing[place] -= 1
            self._tell_of(complete=True)

    def _tell_of(self, *, complete: bool) -> None:
        while self._told < len(self._components):
            place = len(self._components) - 1 - self._told
            if complete and self._missing[place] > 0:
                return
            self._told += 1
            self._tell(self._components[place])
