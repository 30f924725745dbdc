"""Two versions of some weights, for gradients that are one update late, and a look-ahead that corrects the delay.

Mini-batch t is computed with the weights from before the last update, and its gradient updates W(t) to W(t+1): with
the step of an optimizer u at rate lr and g the gradient of mini-batch t,

    W(t+1) = W(t) + u(lr, g(W(t-1)))

PipeDream-2BW: Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021, arXiv 2006.09503, section
3.1. With a look-ahead of c, gradients are those of points ahead of the weights, and the rate is smaller by 1 - c:

    d(t)   = c (W(t) - W(t-1)),  P(t) = W(t) + d(t)
    W(t+1) = P(t) + u((1 - c) lr, g(P(t-1)))

With `accumulate` some mini-batches make no update. They leave W and P as they are: t counts updates in these formulas.
If t counted mini-batches, d would be 0 after each of them, so every update would begin at W(t), and the look-ahead
would move no weights.

For plain SGD these are the updates of Ajanthan et al., "Nesterov Method for Asynchronous Pipeline Parallel
Optimization", ICML 2025, arXiv 2505.01099 (the look-ahead d, and the factor 1 - c of a late gradient), for a delay of
one update on every stage. Three things differ: c is constant, as in the paper's experiments, where its theory
lets it grow with t; every stage has the same c and the same rate, because all have the same delay; and where the paper
trains by NAdam, whose first moment is the look-ahead, here any optimizer makes the step. If it has
momentum, that acts in addition to d.
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

    def __init__(self, parameters: Sequence[nn.Parameter], look_ahead: float = 0.0) -> None:
        """
        Args:
            look_ahead: c: at least 0, below 1; 0: no look-ahead, points are the weights.
        """
        self.parameters = list(parameters)
        self._look_ahead = look_ahead
        # Each list has tensors of its own. An update exchanges the lists and writes on the one that is used no more.
        self._newest = [parameter.data for parameter in parameters]  # W(t)
        self._before = [value.clone() for value in self._newest]  # P(t-1), or W(t-1)
        self._ahead = [value.clone() for value in self._newest] if look_ahead else None  # P(t) with a look-ahead
        self._placed = self._newest  # the list that the parameters have
        self._next: int | None = None  # the mini-batch that `_before` is for

    @property
    def _points(self) -> Values:
        """P(t), which is W(t) without a look-ahead."""
        return self._newest if self._ahead is None else self._ahead

    @cached_property
    def memories(self) -> set[int]:
        """torch's numbers of the memories in which all versions lie."""
        versions = (self._newest, self._before, self._ahead or [])
        return {value.untyped_storage()._cdata for values in versions for value in values}

    def use(self, step: int) -> None:
        """Put the version in place with which mini-batch `step` is computed. The first call is for the first one."""
        if self._next is None:
            self._next = step
        assert step in (self._next, self._next + 1), "only the next mini-batch and the one after it can be computed"
        self._place(self._before if step == self._next else self._points)

    def update(self, step: Callable[[float], None] | None) -> None:
        """Make W(t+1) and P(t+1). The mini-batch after the next one is computed with P(t+1).

        Args:
            step: updates the parameters by their gradients, at its rate times a factor; None: this mini-batch makes no
                update, so W(t) and P(t) stay as they are.
        """
        with torch.no_grad():
            for value, point in zip(self._before, self._points, strict=True):
                value.copy_(point)
        if step is not None:
            self._place(self._before)
            step(1.0 - self._look_ahead)
            self._newest, self._before = self._before, self._newest
            if self._ahead is not None:
                # P(t+1) from W(t+1) and W(t), in place of W(t).
                for value, newest in zip(self._before, self._newest, strict=True):
                    value.mul_(-self._look_ahead).add_(newest, alpha=1.0 + self._look_ahead)
                self._before, self._ahead = self._ahead, self._before
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
        return {name: dict(enumerate(values)) for name, values in self._besides.items()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, after the parameters have taken over the newest version. What is missing
        begins as that one, as at the beginning of a run. Points of a run with a look-ahead have no use without one."""
        for name, values in self._besides.items():
            for number, (value, newest) in enumerate(zip(values, self._newest, strict=True)):
                value.copy_(state[name][number] if name in state else newest)

    @property
    def _besides(self) -> dict[str, Values]:
        """The versions besides the newest one, as checkpoints name them."""
        return {"before": self._before} | ({} if self._ahead is None else {"points": self._ahead})


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
