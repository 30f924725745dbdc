"""Two versions of some weights, for gradients that are one update late.

Mini-batch t is computed with the weights from before the last update, and its gradient updates W(t) to W(t+1): with
the step of an optimizer u at rate lr and g the gradient of mini-batch t,

    W(t+1) = W(t) + u(lr, g(W(t-1)))

PipeDream-2BW: Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021, arXiv 2006.09503, section
3.1. With `accumulate` some mini-batches make no update. They leave W as it is: t counts updates in this formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

Values = list[torch.Tensor]


class DelayedWeights:
    """The versions of some parameters. Outside of forwards and backwards the parameters have the newest one.

    They exchange their `data`, so that a parameter stays the same object for its module, its optimizer and the
    gradients that are added up in it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        # Each list has tensors of its own. An update exchanges the lists and writes on the one that is used no more.
        self._newest = [parameter.data for parameter in parameters]  # W(t)
        self._before = [value.clone() for value in self._newest]  # W(t-1)
        self._placed = self._newest  # the list that the parameters have
        self._next: int | None = None  # the mini-batch that `_before` is for

    @cached_property
    def memories(self) -> set[int]:
        """torch's numbers of the memories in which all versions lie."""
        return {value.untyped_storage()._cdata for value in (*self._newest, *self._before)}

    def use(self, step: int) -> None:
        """Put the version in place with which mini-batch `step` is computed. The first call is for the first one."""
        if self._next is None:
            self._next = step
        assert step in (self._next, self._next + 1), "only the next mini-batch and the one after it can be computed"
        self._place(self._before if step == self._next else self._newest)

    def update(self, step: Callable[[], None] | None) -> None:
        """Make W(t+1). The mini-batch after the next one is computed with it.

        Args:
            step: updates the parameters by their gradients; None: this mini-batch makes no update, so W(t) stays as it
                is.
        """
        with torch.no_grad():
            for value, newest in zip(self._before, self._newest, strict=True):
                value.copy_(newest)
        if step is not None:
            self._place(self._before)
            step()
            self._newest, self._before = self._before, self._newest
        self._place(self._newest)
        if self._next is not None:
            self._next += 1

    def _place(self, values: Values) -> None:
        if values is not self._placed:
            for parameter, value in zip(self.parameters, values, strict=True):
                parameter.data = value
            self._placed = values

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs besides the newest version, by the number of the parameter."""
        return {"before": dict(enumerate(self._before))}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, after the parameters have taken over the newest version. Without it W(t-1)
        begins as that one, as at the beginning of a run."""
        saved = state.get("before") or dict(enumerate(self._newest))
        for number, value in enumerate(self._before):
            value.copy_(saved[number])


def keeping_versions(weights: Iterable[DelayedWeights]) -> AbstractContextManager[object]:
    """Around a forward pass whose weights are updated before its backward pass: the graph keeps the weights as they lie
    now. Without it autograd would read parameters again, and refuse because an update has changed them in place.

    All other tensors are checked as autograd does: the backward pass raises RuntimeError where one has been changed.
    """
    of_weights = {memory for each in weights for memory in each.memories}

    def kept(value: torch.Tensor) -> tuple[torch.Tensor, int | None]:
        in_weights = value.layout == torch.strided and value.untyped_storage()._cdata in of_weights
        return value.detach(), None if in_weights else value._version  # with its graph it would be held for ever

    def checked(found: tuple[torch.Tensor, int | None]) -> torch.Tensor:
        value, version = found
        if version is not None and value._version != version:
            raise RuntimeError(
                f"a tensor of shape {tuple(value.shape)} that a backward pass needs has been modified by an inplace "
                "operation since its forward pass"
            )
        return value

    return saved_tensors_hooks(kept, checked)
