"""What a method of the user sends up, next to what it says that it sends.

The edges between stages are laid out by what the method says. One process needs no edge, so a method that sends
something else would train there and fail on two stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from alray.config.user_code import own_place
from alray.core.errors import Problem, UserCodeError
from alray.models.encoder import Tensors, described, row_major
from alray.models.shape import Shape


@dataclass(frozen=True)
class Contract:
    """What component `index` gives: its losses, and what it sends to the next one.

    Attributes:
        method: `python:package.module.Class`.
        samples: what goes up with the samples (`Method.goes_up`): shapes of one sample, by name. None: nothing goes up,
            from the last component.
        labels: what goes up with the labels (`Method.labels_out`), or None.
        shorter: whether a mini-batch may be narrower than that, as mini-batches of texts are.
    """

    method: str
    index: int
    samples: Mapping[str, Shape] | None
    labels: Mapping[str, Shape] | None
    shorter: bool

    def losses_and_labels(self, given: Any, function: Any, samples: int) -> tuple[Tensors, Tensors]:
        """What `local_losses` returned, its label tensors row-major. Raises UserCodeError if it is not as agreed.

        Args:
            function: the component's `local_losses`.
            samples: of the mini-batch.
        """
        losses, tensors = given
        if self.labels is None:
            return losses, tensors
        return losses, self._as_declared(tensors, self.labels, function, "labels_out", samples)

    def passed_up(self, given: Any, function: Any, samples: int) -> Tensors:
        """What `passed_up` returned, in the same way."""
        if self.samples is None:
            tensors: Tensors = given
            return tensors
        return self._as_declared(given, self.samples, function, "goes_up", samples)

    def _as_declared(
        self, tensors: Mapping[str, Any], declared: Mapping[str, Shape], function: Any, where: str, samples: int
    ) -> Tensors:
        for name in [*tensors, *declared]:
            fault = self._fault(name, tensors.get(name), declared.get(name), where, samples)
            if fault is not None:
                raise self._wrong(function, *fault)
        return {name: row_major(tensor) for name, tensor in tensors.items()}

    def _fault(self, name: str, tensor: Any, shape: Shape | None, where: str, samples: int) -> tuple[str, str] | None:
        """What is wrong with a tensor, and what helps; None: nothing is."""
        if tensor is None:
            return (
                f"returns no `{name}`, and `{where}({self.index})` says that it sends one",
                f"return it, or leave it out of `{where}`",
            )
        got = f"`{name}` of {described(tensor.shape, tensor.dtype)}"
        if shape is None:
            return (
                f"returns {got}, and `{where}({self.index})` does not name it",
                f"have `{where}` also give `{name}`, with the shape of one sample: {tuple(tensor.shape[1:])}",
            )
        wanted = (samples, *shape)
        fits = len(tensor.shape) == len(wanted) and all(
            size == full or (self.shorter and size < full) for size, full in zip(tensor.shape, wanted, strict=True)
        )
        if not fits or tensor.dtype != shape.dtype:
            return (
                f"returns {got}; by `{where}({self.index})` it is {described(wanted, shape.dtype)}",
                f"return that, or have `{where}` give the shape and type of one sample of what is returned",
            )
        if tensor.requires_grad:
            return f"returns {got} with its gradient graph", "detach it: `pass_on` of alray.models.encoder does"
        return None

    def _wrong(self, function: Any, what: str, hint: str) -> UserCodeError:
        file, line = own_place(function) or (None, None)
        message = f"method `{self.method}`: `{function.__qualname__}` {what} (component {self.index})"
        return UserCodeError.of((Problem(message, hint, file, line, "method.kind"),))
