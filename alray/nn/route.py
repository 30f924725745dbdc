"""The inference route as one module: up through the encoders, over the turn, down through the label decoders."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from alray.nn.component import AssociatedComponent, BackpropagationComponent, Component
from alray.nn.contrastive_component import ContrastiveComponent
from alray.nn.encoder import Encoder, Tensors, in_default_strides, run_block


class Route(nn.Module):
    """f_1..f_l, then b_l, then h_l..h_1 of Associated Learning; f_1..f_L and the head where there is no label chain.

    What is left of a network that is not trained any more: no label encoder, no projection, no bridge but the one
    where the route turns, no loss, no optimizer. In evaluation mode it gives the bits that an evaluation of the run
    gives. (A block of one's own that draws random numbers in evaluation mode too draws them from torch's global stream
    here, not from the run's.)
    """

    def __init__(
        self, blocks: Sequence[nn.Module], turn: nn.Module, decoders: Sequence[nn.Module], *, writes_input: bool
    ) -> None:
        """blocks: f_1..f_l; turn: b_l or the head; decoders: h_1..h_l, or none; writes_input: whether f_1 does."""
        super().__init__()
        self.f = nn.ModuleList(blocks)
        self.turn = turn
        self.h = nn.ModuleList(decoders)
        self.writes_input = writes_input
        self.eval()

    def forward(self, samples: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """samples: [N, *sample], prepared as in training; mask: [N, T] bool, of text. Class scores [N, classes]."""
        tensors: Tensors = {"s": samples.clone() if self.writes_input else samples}
        if mask is not None:
            tensors["mask"] = mask
        for block in self.f:
            tensors = in_default_strides(run_block(block, tensors))
        scores: torch.Tensor = self.turn(tensors["s"], tensors.get("mask"))
        for decoder in reversed(self.h):
            scores = decoder(scores)
        return scores


def route_of(components: Sequence[Component], depth: int) -> Route:
    """The route of this depth through the components of a network, which it shares and sets to evaluation mode.

    components: all of them, in order, or the first `depth`; a route must end at component `depth` (counted from 1).
    """
    taken = components[:depth]
    encoders = [_encoder(component) for component in taken]
    decoders = [component.h for component in taken if isinstance(component, AssociatedComponent)]
    return Route(
        [encoder.body for encoder in encoders],
        _turn(taken[-1]),
        decoders,
        writes_input=encoders[0].writes_input,
    )


def _encoder(component: Component) -> Encoder:
    assert isinstance(component, AssociatedComponent | BackpropagationComponent | ContrastiveComponent)
    return component.f


def _turn(component: Component) -> nn.Module:
    if isinstance(component, AssociatedComponent):
        return component.b
    assert isinstance(component, BackpropagationComponent | ContrastiveComponent)
    assert component.head is not None, "no route ends here"
    return component.head
