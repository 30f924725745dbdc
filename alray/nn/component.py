"""Components: what one link of the chain computes, with its own losses and its own optimizers."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import nn
from torch.nn import functional

from alray.nn.boundary import pass_on
from alray.nn.draws import seed_draws
from alray.nn.optimizers import ComponentOptimizer

Tensors = dict[str, torch.Tensor]
"""What passes between components, by name: `s` [N, ...], `t` [N, label_dim], `labels` [N]."""


class Encoder(nn.Module):
    """f with what alray must know to run it exactly: whether it draws, and whether it writes on its input."""

    def __init__(self, body: nn.Module, *, index: int, seed: int, draws: bool, writes_input: bool) -> None:
        super().__init__()
        self.body = body
        self.index, self.seed = index, seed
        self.draws, self.writes_input = draws, writes_input

    def run(self, s: torch.Tensor, *purpose: str | int) -> torch.Tensor:
        """f(s), its random numbers drawn from (seed, component, purpose)."""
        if self.draws:
            seed_draws(s.device, self.seed, "draw", self.index, *purpose)
        if self.writes_input:
            s = s.clone()  # the neighbour's loss still needs what it passed on
        result: torch.Tensor = self.body(s)
        return result


class Component(nn.Module, ABC):
    """One component l: parts named f, b, g, h (or fewer), in that order, and the optimizers over them."""

    index: int

    @abstractmethod
    def optimizers(self) -> dict[str, ComponentOptimizer]:
        """The component's optimizers, by a name that is stable over versions (it is in checkpoints)."""

    def weights(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by name (`f.0.weight`, ...), in the order in which they are hashed."""
        return {name.replace("f.body.", "f.", 1): value for name, value in self.state_dict().items()}

    def load_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Take over weights saved by `weights()`; names and shapes must be the same."""
        self.load_state_dict(
            {(f"f.body.{name[2:]}" if name.startswith("f.") else name): value for name, value in weights.items()}
        )


class LocalComponent(Component):
    """A component that learns from its own losses only: no gradient leaves it, none comes in."""

    @abstractmethod
    def forward_step(self, incoming: Tensors, step: int) -> Tensors:
        """F: what the next component gets, computed before this component's own update of this step."""

    @abstractmethod
    def backward_step(self) -> Tensors:
        """B: the local losses of the step last forwarded, and their gradients. Returns losses by name, stopped."""

    @abstractmethod
    def update_step(self, lr: float, label_lr: float) -> None:
        """U: one step of the component's optimizers."""

    @abstractmethod
    def infer(self, s: torch.Tensor, *purpose: str | int) -> torch.Tensor:
        """E: f in evaluation mode."""

    @abstractmethod
    def code(self, s: torch.Tensor) -> torch.Tensor:
        """The route's turn: from f's output to the label chain, `[N, ...] -> [N, label_dim]`."""

    @abstractmethod
    def decode(self, t: torch.Tensor) -> torch.Tensor:
        """D: one step down the label chain, `t_l -> t_{l-1}`; component 1 gives class scores."""


class AssociatedComponent(LocalComponent):
    """Associated Learning (Kao & Chen 2021; Wu et al., ICLR 2022): encoder f, bridge b, label encoder g, decoder h.

        t_l = g(t_{l-1})      autoencoder loss   d(h(t_l), t_{l-1})
        s_l = f(s_{l-1})      associated loss    MSE(b(s_l), stop(t_l))

    The associated loss trains f and b, the autoencoder loss g and h; what is passed on is stopped.
    """

    def __init__(
        self,
        index: int,
        *,
        f: Encoder,
        b: nn.Module,
        g: nn.Module,
        h: nn.Module,
        classes: int | None,
        label_loss: str,
        optimizer: object,
    ) -> None:
        """`classes` is the number of classes for the first component, which encodes labels, and None for the others."""
        super().__init__()
        self.index = index
        self.f, self.b, self.g, self.h = f, b, g, h
        self.classes = classes
        self.label_loss = label_loss
        self._encoders = ComponentOptimizer([*f.parameters(), *b.parameters()], optimizer)
        self._labels = ComponentOptimizer([*g.parameters(), *h.parameters()], optimizer)
        self._pending: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None

    def optimizers(self) -> dict[str, ComponentOptimizer]:
        return {"encoder": self._encoders, "label": self._labels}

    def forward_step(self, incoming: Tensors, step: int) -> Tensors:
        s_out = self.f.run(incoming["s"], step)
        if self.classes is not None:
            # The type of f's output: its input may be integers, word numbers for one.
            t_in = functional.one_hot(incoming["labels"], self.classes).to(s_out.dtype)
        else:
            t_in = incoming["t"]
        t_out = self.g(t_in)
        self._pending = (s_out, t_out, t_in)
        return {"s": pass_on(s_out), "t": pass_on(t_out)}

    def backward_step(self) -> Tensors:
        assert self._pending is not None, "B before F"
        s_out, t_out, t_in = self._pending
        self._pending = None
        self._encoders.zero_grad()
        self._labels.zero_grad()
        associated = functional.mse_loss(self.b(s_out), t_out.detach())
        associated.backward()
        reconstruction = self.h(t_out)
        if self.label_loss == "cross_entropy":
            autoencoder = functional.cross_entropy(reconstruction, t_in)
        else:
            autoencoder = functional.mse_loss(reconstruction, t_in)
        autoencoder.backward()
        return {"associated": associated.detach(), "autoencoder": autoencoder.detach()}

    def update_step(self, lr: float, label_lr: float) -> None:
        self._encoders.step(lr)
        self._labels.step(label_lr)

    def infer(self, s: torch.Tensor, *purpose: str | int) -> torch.Tensor:
        return pass_on(self.f.run(s, *purpose))

    def code(self, s: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.b(s)
        return result

    def decode(self, t: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.h(t)
        return result


class BackpropagationComponent(Component):
    """A link of the backpropagation twin: the same f; the last one has the classifier head."""

    def __init__(self, index: int, *, f: Encoder, head: nn.Module | None, optimizer: object) -> None:
        super().__init__()
        self.index = index
        self.f = f
        self.head = head
        parameters = [*f.parameters(), *(head.parameters() if head is not None else [])]
        self._optimizer = ComponentOptimizer(parameters, optimizer)

    def optimizers(self) -> dict[str, ComponentOptimizer]:
        return {"encoder": self._optimizer}
