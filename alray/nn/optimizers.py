"""Optimizers of one component. `fused` is off and `foreach` fixed, so that bits do not depend on a heuristic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


class ComponentOptimizer:
    """An optimizer over some parameters of one component; does nothing where there are none."""

    def __init__(self, parameters: Sequence[nn.Parameter], optimizer: Any) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.kind: str = optimizer.kind
        self.clip_norm: float | None = optimizer.clip_norm
        self._optimizer = _build(self.parameters, optimizer) if self.parameters else None

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def step(self, lr: float) -> None:
        """One update at this learning rate, gradients clipped to `clip_norm` where the spec says so."""
        if self._optimizer is None:
            return
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip_norm, foreach=False)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """What the optimizer has gathered, with its kind; empty where there are no parameters."""
        return {"kind": self.kind, **self._optimizer.state_dict()} if self._optimizer is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave: moments and step counts alone.

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

    def state_bytes_per_parameter(self) -> int:
        """Values the optimizer keeps for each parameter: 2 for Adam, 1 for momentum, 0 for plain SGD."""
        if isinstance(self._optimizer, torch.optim.Adam | torch.optim.AdamW):
            return 2
        if isinstance(self._optimizer, torch.optim.SGD):
            return 1 if self._optimizer.param_groups[0]["momentum"] else 0
        return 0


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
