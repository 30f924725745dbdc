"""Optimizers of one component. `fused` and `foreach` are fixed, so that no heuristic of torch changes the bits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import nn

from alray.nn.lars import Lars


class Accumulation:
    """The mean of the gradients of several mini-batches, for one update.

    Without batch normalisation, and with losses that are means over samples, it equals the gradient of one mini-batch
    of all their samples. The sum is kept apart from `parameter.grad`, so that a backward pass need not know of it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], mini_batches: int) -> None:
        """mini_batches: per update, at least 1; with 1 nothing is kept and nothing is copied."""
        self.mini_batches = mini_batches
        self._parameters = list(parameters)
        self._sums: dict[int, torch.Tensor] = {}
        self._gathered = 0

    def gather(self, weight: float = 1.0) -> bool:
        """Take the gradients of one mini-batch, times `weight`, from the parameters; return whether an update is due.

        If it is due, the parameters' gradients are now the mean; if not, they are None. With one mini-batch an update
        nothing happens, and nothing is multiplied.
        """
        if self.mini_batches == 1:
            return True
        for index, parameter in enumerate(self._parameters):
            gradient, parameter.grad = parameter.grad, None
            if gradient is None:
                continue
            if weight != 1.0:
                gradient.mul_(weight)
            if index in self._sums:
                self._sums[index].add_(gradient)
            else:
                self._sums[index] = gradient  # no copy: the next backward pass makes a new tensor
        self._gathered += 1
        if self._gathered < self.mini_batches:
            return False
        for index, total in self._sums.items():
            self._parameters[index].grad = total.div_(self.mini_batches)
        self._sums = {}
        self._gathered = 0
        return True

    def state_dict(self) -> dict[str, Any]:
        """The number of mini-batches since the last update and the sums of their gradients; empty if there are none."""
        return {"mini_batches": self._gathered, "gradients": dict(self._sums)} if self._gathered else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave.

        Raises ValueError if it holds as many mini-batches as an update takes here, or more.
        """
        gathered = state.get("mini_batches", 0)
        if gathered >= self.mini_batches:
            raise ValueError(
                f"it holds the gradients of {gathered} mini-batches, and an update now takes {self.mini_batches}"
            )
        self._gathered = gathered
        self._sums = {
            index: gradient.to(self._parameters[index].device, self._parameters[index].dtype, copy=True)
            for index, gradient in state.get("gradients", {}).items()
        }

    def clear_sums(self) -> None:
        """Leave the gradients to another replica; the number of mini-batches stays."""
        self._sums = {}

    def add(self, gradients: dict[int, torch.Tensor]) -> None:
        """Add the sums that another replica gathered over the same mini-batches."""
        for index, gradient in gradients.items():
            own = self._sums.get(index)
            moved = gradient.to(self._parameters[index].device, self._parameters[index].dtype, copy=True)
            self._sums[index] = moved if own is None else own.add_(moved)


class ComponentOptimizer:
    """An optimizer over some parameters of one component; without parameters it does nothing.

    For every mini-batch the order is `zero_grad`, the backward pass, `step`. With `accumulate: n` only every n-th
    `step` updates, by the mean of n gradients. Replicas that average gradients call `gather` before `step`.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], optimizer: Any) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.kind: str = optimizer.kind
        self.clip_norm: float | None = optimizer.clip_norm
        self.accumulation = Accumulation(self.parameters, optimizer.accumulate)
        self._due: bool | None = None  # whether the gathered mini-batch completes an update; None: not gathered yet
        self._optimizer = _build(self.parameters, optimizer) if self.parameters else None

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @property
    def accumulates(self) -> bool:
        """Whether an update takes the gradients of more than one mini-batch."""
        return self.accumulation.mini_batches > 1

    def gather(self, weight: float = 1.0) -> bool:
        """Add the gradients of the last backward pass; return whether the next `step` will update.

        If it will, the parameters' gradients are those of the update, and may be averaged over replicas; if not, they
        are None. weight: the replica's share, of 1, of this mini-batch, which gradients that wait are multiplied by.
        Further calls for the same mini-batch change nothing. `step` calls it if nobody has.
        """
        if self._due is None:
            self._due = self.accumulation.gather(weight)
        return self._due

    def step(self, lr: float) -> None:
        """Update at this rate if the mini-batch completes an update; gradients are clipped to `clip_norm` first."""
        due, self._due = self.gather(), None
        if not due or self._optimizer is None:
            return
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip_norm, foreach=False)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()

    def update_as_on(self, device: torch.device) -> None:
        """Update as an optimizer does that was made on this device.

        A GPU updates many parameters with one kernel, for which Adam takes memory of the size of all of them.
        """
        for group in self._optimizer.param_groups if self._optimizer is not None else ():
            if "foreach" in group:
                group["foreach"] = device.type == "cuda" and not group["fused"]

    def state_dict(self) -> dict[str, Any]:
        """The state of the optimizer, with its kind; empty without parameters."""
        if self._optimizer is None:
            return {}
        waiting = self.accumulation.state_dict()
        return {"kind": self.kind, **self._optimizer.state_dict(), **({"accumulation": waiting} if waiting else {})}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave: moments, step counts, gradients that wait for their update.

        Rate, decay and other settings stay those of the spec, which a resume may have changed; `foreach` stays that of
        this device. Raises ValueError if the state is of another kind of optimizer, or of other parameters.
        """
        if self._optimizer is None:
            return
        if state.get("kind") != self.kind:
            raise ValueError(f"the state is that of {state.get('kind')}, the optimizer is {self.kind}")
        own = self._optimizer.state_dict()["param_groups"]
        groups = [{**mine, "params": saved["params"]} for mine, saved in zip(own, state["param_groups"], strict=True)]
        self._optimizer.load_state_dict({"state": state["state"], "param_groups": groups})
        self.accumulation.load_state_dict(state.get("accumulation", {}))

    def state_bytes_per_parameter(self) -> int:
        """Number of values the optimizer keeps for each parameter: 2 for Adam, 1 for momentum, 0 for plain SGD.

        There is one more if gradients wait for their update.
        """
        if self._optimizer is None:
            return 0
        waiting = 1 if self.accumulation.mini_batches > 1 else 0
        if isinstance(self._optimizer, torch.optim.Adam | torch.optim.AdamW):
            return waiting + 2
        return waiting + (1 if self._optimizer.param_groups[0]["momentum"] else 0)


@cache
def _without_compiler(kind: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """The same optimizer, which does not load torch's compiler: that takes every process more than a second.

    alray compiles no optimizer. torch wraps these methods only to keep the compiler out of them, and to turn gradients
    off in `step`.
    """
    methods = {
        name: inspect.unwrap(getattr(kind, name)) for name in ("add_param_group", "state_dict", "load_state_dict")
    }
    return type(kind.__name__, (kind,), {**methods, "step": torch.no_grad()(inspect.unwrap(kind.step))})


def _build(parameters: list[nn.Parameter], spec: Any) -> torch.optim.Optimizer:
    device = parameters[0].device.type
    fused = spec.kind != "lars" and spec.fused and device != "meta"  # on the meta device, torch fuses nothing
    foreach = device == "cuda" and not fused
    if spec.kind == "sgd":
        return _without_compiler(torch.optim.SGD)(
            parameters,
            lr=spec.lr,
            momentum=spec.momentum,
            nesterov=spec.nesterov,
            weight_decay=spec.weight_decay,
            foreach=foreach,
            fused=fused,
        )
    if spec.kind == "lars":
        return _without_compiler(Lars)(
            parameters,
            lr=spec.lr,
            momentum=spec.momentum,
            weight_decay=spec.weight_decay,
            trust_coefficient=spec.trust_coefficient,
            eps=spec.eps,
        )
    kind = _without_compiler(torch.optim.Adam if spec.kind == "adam" else torch.optim.AdamW)
    return kind(
        parameters,
        lr=spec.lr,
        betas=tuple(spec.betas),
        eps=spec.eps,
        weight_decay=spec.weight_decay,
        foreach=foreach,
        fused=fused,
    )
