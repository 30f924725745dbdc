"""A route of inference as one module: up through the encoders, over the turn, down through the decoders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from alray.models.boundary import Rounding
from alray.models.component import Component, Passage, added, read
from alray.models.encoder import Tensors, in_default_strides, run_block


class Route(nn.Module):
    """The part of a network that inference needs: encoders f_1..f_l, the turn, and decoders h_l..h_1 if there are any.

    In evaluation mode it gives the bits that an evaluation of the run gives. One exception: a user's block that draws
    random numbers in evaluation mode too draws them from torch's global stream here, not from the run's.
    """

    def __init__(
        self,
        blocks: Sequence[nn.Module],
        turn: nn.Module,
        decoders: Sequence[nn.Module],
        *,
        writes_input: bool,
        below: Sequence[nn.Module] = (),
        passages: Sequence[nn.Module | None] = (),
        boundaries: Sequence[nn.Module] = (),
    ) -> None:
        """
        Args:
            blocks: f_1..f_l.
            decoders: h_1..h_l, or none.
            writes_input: whether f_1 changes its input in place.
            below: the turns of the depths below l whose scores are added up: of all or of the last of them.
            passages: those of the components 1..l, None for one that has none; or none at all.
            boundaries: what compresses between these components, or none.
        """
        super().__init__()
        self.f = nn.ModuleList(blocks)
        self.turn = turn
        self.h = nn.ModuleList(decoders)
        self.below = nn.ModuleList(below)
        self.passages = nn.ModuleList(passages)  # type: ignore[arg-type]  # it may hold None
        self.boundaries = nn.ModuleList(boundaries)
        self.writes_input = writes_input
        self.eval()

    def forward(self, samples: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Class scores [N, classes].

        Args:
            samples: [N, *sample], prepared as in training.
            mask: [N, T] bool, of text.
        """
        return self.scores(self.up(self.tensors(samples, mask)))

    def tensors(self, samples: torch.Tensor, mask: torch.Tensor | None = None) -> Tensors:
        """What the first encoder gets; the arguments as for `forward`."""
        tensors: Tensors = {"s": samples.clone() if self.writes_input else samples}
        if mask is not None:
            tensors["mask"] = mask
        return tensors

    def up(self, tensors: Tensors) -> Tensors:
        """From the samples to what the last encoder passes on, not compressed."""
        for passed_on in self.each(tensors):
            tensors = passed_on
        return tensors

    def each(self, tensors: Tensors) -> Iterator[Tensors]:
        """What each encoder passes on, before it is compressed, one after the other; the argument as for `up`."""
        first = len(self.f) - len(self.below)  # the encoder above the first turn that is added up
        for depth in range(len(self.f)):
            along = {"score": added(tensors, read(self.below[depth - first], tensors))} if depth >= first else {}
            tensors = self._up(depth, tensors) | along
            yield tensors

    def _up(self, depth: int, tensors: Tensors) -> Tensors:
        if depth > 0 and self.boundaries:
            tensors = self.boundaries[depth - 1](tensors)
        passage = self.passages[depth] if self.passages else None
        if passage is None:
            return in_default_strides(run_block(self.f[depth], tensors))
        assert isinstance(passage, Passage)
        return passage.after(tensors, in_default_strides(run_block(self.f[depth], passage.before(tensors))))

    def scores(self, tensors: Tensors) -> torch.Tensor:
        """Class scores [N, classes] from what `up` gives."""
        scores = added(tensors, read(self.turn, tensors))
        for decoder in reversed(self.h):
            scores = decoder(scores)
        return scores


def route_of(components: Sequence[Component], depth: int) -> Route:
    """The route of this depth. It shares the components' weights and sets them to evaluation mode.

    Args:
        components: those of a network in order, the first `depth` at least; a route must end at component `depth`, from
            1.
    """
    taken = components[:depth]
    turn = taken[-1].turn
    assert turn is not None, "no route ends here"
    passages = [component.passage for component in taken]
    return Route(
        [component.f.body for component in taken],
        turn,
        [component.decoder for component in taken if component.decoder is not None],
        writes_input=taken[0].f.writes_input,
        below=[component.turn for component in taken[:-1] if component.adds_up and component.turn is not None],
        passages=passages if any(each is not None for each in passages) else (),
        boundaries=[Rounding(component.above.up) for component in taken[:-1] if component.above is not None],
    )
