"""One component's part in a run, action by action, for whoever counts or times it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from alray.nn.component import AssociatedComponent, BackpropagationComponent, Component, LocalComponent
from alray.nn.encoder import Tensors, in_default_strides, stopped


class Exercise:
    """One component's F, B, U, E and D, to be run one after another."""

    def __init__(self, component: Component, incoming: Tensors) -> None:
        self.component, self.incoming = component, incoming
        self.passed_on: Tensors = {}
        self._loss: torch.Tensor | None = None
        self._seed: torch.Tensor | None = None
        self.parts: dict[str, Callable[[], None]] = {
            "forward_s": self._forward,
            "backward_s": self._backward,
            "update_s": self._update,
            "infer_s": self._infer,
            "route_s": self._route,
        }

    def _forward(self) -> None:
        if isinstance(self.component, LocalComponent):
            self.passed_on = self.component.encoder_step(self.incoming, 0)
            return
        assert isinstance(self.component, BackpropagationComponent)
        s = self.incoming["s"].detach()
        if s.is_floating_point() and self.component.index > 0:
            s.requires_grad_()  # its gradient is part of the cost
        out = in_default_strides(self.component.f.run({**self.incoming, "s": s}, 0))
        self.passed_on = stopped(out)
        if self.component.head is not None:
            scores = self.component.head(out["s"], out.get("mask"))
            self._loss = functional.cross_entropy(scores, self.incoming["labels"])
        else:
            self._loss, self._seed = out["s"], torch.ones_like(out["s"])

    def _backward(self) -> None:
        if isinstance(self.component, LocalComponent):
            self.passed_on |= self.component.label_step(self.incoming)
            self.component.backward_step()
            return
        for optimizer in self.component.optimizers().values():
            optimizer.zero_grad()
        assert self._loss is not None
        if self._loss.requires_grad:
            self._loss.backward(self._seed)
        self._loss = self._seed = None

    def _update(self) -> None:
        # A rate of 0 leaves the weights as they are, so that repeats measure the same thing.
        for optimizer in self.component.optimizers().values():
            optimizer.step(0.0)

    @torch.no_grad()
    def _infer(self) -> None:
        self.component.eval()
        if isinstance(self.component, LocalComponent):
            outgoing = self.component.infer(self.incoming, 0)
            if self.component.ends_route:
                self.component.code(outgoing)
        elif isinstance(self.component, BackpropagationComponent):
            self.component.f.run(self.incoming, 0)
        self.component.train()

    @torch.no_grad()
    def _route(self) -> None:
        if isinstance(self.component, AssociatedComponent):
            self.component.decode(self.passed_on["t"])
