"""Optimizers of one component. `fused` is off and `foreach` fixed, so that bits do not depend on a heuristic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from alray.nn.accumulation import Accumulation
from alray.nn.lars import Lars


class ComponentOptimizer:
    """An optimizer over some parameters of one component; does nothing where there are none.

    With `accumulate` above 1 it updates with each so many-th mini-batch, by the mean of their gradients. For every
    mini-batch: `zero_grad`, the backward pass, `step`. Whoever has to see the gradient of an update before it is made
    (replicas add theirs up) calls `gather` between the last two.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], optimizer: Any) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.kind: str = optimizer.kind
        self.clip_norm: float | None = optimizer.clip_norm
        self._accumulation = Accumulation(self.parameters, optimizer.accumulate)
        self._due: bool | None = None  # whether the mini-batch last gathered completes an update; None: not gathered
        self._optimizer = _build(self.parameters, optimizer) if self.parameters else None

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def gather(self) -> bool:
        """Count in the gradients of the mini-batch just gone back; return whether `step` will update.

        When it will, the parameters' gradients are those of the update, to be averaged over replicas; when not, they
        are none. Once a mini-batch, however often it is called; `step` does it where nobody has.
        """
        if self._due is None:
            self._due = self._accumulation.gather()
        return self._due

    def step(self, lr: float) -> None:
        """The mini-batch's update, where it completes one: at this rate, gradients clipped to `clip_norm` before."""
        due, self._due = self.gather(), None
        if not due or self._optimizer is None:
            return
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip_norm, foreach=False)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """What the optimizer has gathered, with its kind; empty where there are no parameters."""
        if self._optimizer is None:
            return {}
        waiting = self._accumulation.state_dict()
        return {"kind": self.kind, **self._optimizer.state_dict(), **({"accumulation": waiting} if waiting else {})}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave: moments, step counts, gradients that wait for their update.

        Rates, decay and the like stay those of the spec, which a resume may have changed, and `foreach` that of this
        device. Raises ValueError where the state is that of another kind of optimizer or of other parameters.
        """
        if self._optimizer is None:
            return
        if state.get("kind") != self.kind:
            raise ValueError(f"the state is that of {state.get('kind')}, the optimizer is {self.kind}")
        own = self._optimizer.state_dict()["param_groups"]
        groups = [{**mine, "params": saved["params"]} for mine, saved in zip(own, state["param_groups"], strict=True)]
        self._optimizer.load_state_dict({"state": state["state"], "param_groups": groups})
        self._accumulation.load_state_dict(state.get("accumulation", {}))

    def state_bytes_per_parameter(self) -> int:
        """Values the optimizer keeps for each parameter: 2 for Adam, 1 for momentum, 0 for plain SGD.

        One more where gradients wait for their update.
        """
        if self._optimizer is None:
            return 0
        waiting = 1 if self._accumulation.mini_batches > 1 else 0
        if isinstance(self._optimizer, torch.optim.Adam | torch.optim.AdamW):
            return waiting + 2
        return waiting + (1 if self._optimizer.param_groups[0]["momentum"] else 0)


def _build(parameters: list[nn.Parameter], spec: Any) -> torch.optim.Optimizer:
    on_gpu = parameters[0].device.type == "cuda"
    if spec.kind == "sgd":
        return torch.optim.SGD(
            parameters,
            lr=spec.lr,
            momentum=spec.momentum,
            nesterov=spec.nesterov,
            weight_decay=spec.weight_decay,
            foreach=on_gpu,
            fused=False,
        )
    if spec.kind == "lars":
        return Lars(
            parameters,
            lr=spec.lr,
            momentum=spec.momentum,
            weight_decay=spec.weight_decay,
            trust_coefficient=spec.trust_coefficient,
            eps=spec.eps,
        )
    kind = torch.optim.Adam if spec.kind == "adam" else torch.optim.AdamW
    return kind(
        parameters,
        lr=spec.lr,
        betas=tuple(spec.betas),
        eps=spec.eps,
        weight_decay=spec.weight_decay,
        foreach=on_gpu,
        fused=False,
    )
