"""Components: what one link of the chain computes, with its own losses and its own optimizers."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import nn
from torch.nn import functional

from alray.nn.boundary import pass_on
from alray.nn.encoder import Encoder, Tensors, stopped
from alray.nn.optimizers import ComponentOptimizer

__all__ = ["AssociatedComponent", "BackpropagationComponent", "Component", "Encoder", "LocalComponent", "Tensors"]


class Component(nn.Module, ABC):
    """One component l: parts named f, b, g, h (or fewer), in that order, and the optimizers over them."""

    index: int

    @abstractmethod
    def optimizers(self) -> dict[str, ComponentOptimizer]:
        """The component's optimizers, by a name that is stable over versions (it is in checkpoints)."""

    def weights(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by name (`f.0.weight`, ...), in the order in which they are hashed."""
        return {name.replace("f.body.", "f.", 1): value for name, value in self.state_dict().items()}

    def part_parameters(self) -> dict[str, int]:
        """Trainable scalars of each part, by its name, in the parts' order."""
        return {
            name: sum(parameter.numel() for parameter in part.parameters() if parameter.requires_grad)
            for name, part in self.named_children()
        }

    def load_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Take over weights saved by `weights()`; names and shapes must be the same."""
        self.load_state_dict(
            {(f"f.body.{name[2:]}" if name.startswith("f.") else name): value for name, value in weights.items()}
        )


class LocalComponent(Component):
    """A component that learns from its own losses only: no gradient leaves it, none comes in."""

    @property
    @abstractmethod
    def ends_route(self) -> bool:
        """Whether a route of inference turns here: up through the encoders, over `code`, down through `decode`."""

    @abstractmethod
    def encoder_step(self, incoming: Tensors, step: int) -> Tensors:
        """F: the next component's `s` with what goes along with it, computed before this component's own update."""

    @abstractmethod
    def label_step(self, incoming: Tensors) -> Tensors:
        """The first part of B, behind F: the local losses; returns the next component's `t` or `labels`."""

    def forward_step(self, incoming: Tensors, step: int) -> Tensors:
        """Both: all that the next component gets."""
        passed_on = self.encoder_step(incoming, step)
        return passed_on | self.label_step(incoming)

    @abstractmethod
    def backward_step(self) -> Tensors:
        """The second part of B: the gradients of the local losses. Returns these by name, stopped."""

    @abstractmethod
    def update_step(self, lr: float, label_lr: float) -> None:
        """U: one step of the component's optimizers."""

    @abstractmethod
    def infer(self, incoming: Tensors, *purpose: str | int) -> Tensors:
        """E: f in evaluation mode; what the next component gets of it."""

    @abstractmethod
    def code(self, outgoing: Tensors) -> torch.Tensor:
        """The route's turn: from what `infer` gave to the label chain, `[N, label_dim]`."""

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
        self._encoded: Tensors | None = None
        self._losses: Tensors | None = None

    @property
    def ends_route(self) -> bool:
        return True

    def optimizers(self) -> dict[str, ComponentOptimizer]:
        return {"encoder": self._encoders, "label": self._labels}

    def encoder_step(self, incoming: Tensors, step: int) -> Tensors:
        self._encoded = self.f.run(incoming, step)
        return stopped(self._encoded)

    def label_step(self, incoming: Tensors) -> Tensors:
        assert self._encoded is not None, "B before F"
        encoded, self._encoded = self._encoded, None
        if self.classes is not None:
            # The type of f's output: its input may be integers, word numbers for one.
            t_in = functional.one_hot(incoming["labels"], self.classes).to(encoded["s"].dtype)
        else:
            t_in = incoming["t"]
        t_out = self.g(t_in)
        associated = functional.mse_loss(self.b(encoded["s"], encoded.get("mask")), t_out.detach())
        reconstruction = self.h(t_out)
        if self.label_loss == "cross_entropy":
            autoencoder = functional.cross_entropy(reconstruction, t_in)
        else:
            autoencoder = functional.mse_loss(reconstruction, t_in)
        self._losses = {"associated": associated, "autoencoder": autoencoder}
        return {"t": pass_on(t_out)}

    def backward_step(self) -> Tensors:
        assert self._losses is not None, "gradients before losses"
        losses, self._losses = self._losses, None
        self._encoders.zero_grad()
        self._labels.zero_grad()
        torch.autograd.backward(tuple(losses.values()))  # nothing is in both, and one pass is quicker than two
        return {name: loss.detach() for name, loss in losses.items()}

    def update_step(self, lr: float, label_lr: float) -> None:
        self._encoders.step(lr)
        self._labels.step(label_lr)

    def infer(self, incoming: Tensors, *purpose: str | int) -> Tensors:
        return stopped(self.f.run(incoming, *purpose))

    def code(self, outgoing: Tensors) -> torch.Tensor:
        result: torch.Tensor = self.b(outgoing["s"], outgoing.get("mask"))
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
