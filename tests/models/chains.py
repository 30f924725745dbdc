"""A chain of parts of a model that is cut, and how far it is from the whole."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from alray.models.encoder import Tensors, row_major
from alray.models.imported.calls import scores_of
from alray.models.imported.cutting import Cutter, samples_of
from alray.models.imported.part import Part
from alray.models.imported.steps import INPUT, Key
from alray.models.shape import Shape

Edges = list[list[tuple[torch.Tensor, torch.Tensor]]]
"""Between parts: each tensor with a gradient as it was sent and as it was received."""
SIZES = ((True, 2, 0), (True, 4, 1), (False, 1, 2))
"""Of mini-batches: whether of training, samples, and by how many positions a text is shorter."""


class Apart(NamedTuple):
    """The largest differences of three mini-batches, and whether the same random numbers were drawn."""

    scores: float
    gradients: float
    buffers: float
    same_draws: bool


SAME = Apart(0.0, 0.0, 0.0, same_draws=True)


def parts_of(cutter: Cutter, model: nn.Module, keys: Sequence[Key]) -> list[Part]:
    """The parts that these cuts make, with the parameters of `model`."""
    cuts = [cutter.after(key) for key in (INPUT, *keys)]
    ends = [*cuts[1:], None]
    return [cutter.part(model, *cut, "the model", shared=True) for cut in zip(cuts, ends, strict=True)]


def passed(parts: Sequence[Part], incoming: Tensors) -> tuple[torch.Tensor, Edges]:
    edges: Edges = []
    for part in parts[:-1]:
        pairs, given = [], {}
        for name, value in part(incoming).items():
            sent = row_major(value)
            given[name] = sent.detach()
            if sent.requires_grad:
                given[name].requires_grad_()
                pairs.append((sent, given[name]))
        edges.append(pairs)
        incoming = given
    return parts[-1](incoming)["s"], edges


def backward(scores: torch.Tensor, edges: Edges) -> None:
    loss = (scores * torch.linspace(-1.0, 1.0, scores.numel(), dtype=scores.dtype).view(scores.shape)).sum()
    if loss.requires_grad:
        loss.backward()
    for pairs in reversed(edges):
        found = [(sent, received.grad) for sent, received in pairs if received.grad is not None]
        if found:
            torch.autograd.backward([sent for sent, _ in found], [gradient for _, gradient in found])


def apart(model: nn.Module, parts: Sequence[Part], sample: Shape) -> Apart:
    """How far the chain is from the model, in training on mini-batches of two sizes, then in evaluation."""
    generator = torch.Generator().manual_seed(3)
    worst = SAME
    torch.backends.mha.set_fastpath_enabled(False)  # as in the parts, which it would not call
    for number, (training, count, shorter) in enumerate(SIZES):
        positions = max(sample[0] - shorter, 1) if sample.is_text else None
        samples, mask = samples_of(sample, count, positions, generator)
        found = []
        for modules in ([model], parts):
            model.zero_grad()
            for module in modules:
                module.train(training)
            torch.manual_seed(number)
            with torch.set_grad_enabled(training):
                edges: Edges = []
                if modules is parts:
                    scores, edges = passed(parts, {"s": samples.clone()} | ({} if mask is None else {"mask": mask}))
                else:
                    scores = scores_of(model, samples.clone(), mask)
                backward(scores, edges)
            gradients = [each.grad for each in model.parameters()]
            found.append((scores.detach(), gradients, torch.get_rng_state()))
        (scores, gradients, draws), (of_parts, gradients_of_parts, draws_of_parts) = found
        pairs = list(zip(gradients, gradients_of_parts, strict=True))
        assert all((one is None) == (other is None) for one, other in pairs)
        buffers = dict(model.named_buffers())
        worst = Apart(
            max(worst.scores, _difference(scores, of_parts)),
            max([worst.gradients, *(_difference(*pair) for pair in pairs if pair[0] is not None)]),
            max(
                [
                    worst.buffers,
                    *(_difference(buffers[name], each) for part in parts for name, each in _saved(part).items()),
                ]
            ),
            worst.same_draws and torch.equal(draws, draws_of_parts),
        )
    torch.backends.mha.set_fastpath_enabled(True)
    return worst


def _saved(part: Part) -> dict[str, torch.Tensor]:
    saved = part.state_dict().keys()
    return {name: each for name, each in part.named_buffers() if name in saved}


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).abs().max()) if one.numel() else 0.0


def cutter_of(model: nn.Module, sample: Shape) -> Cutter:
    return Cutter(copy.deepcopy(model), sample)
