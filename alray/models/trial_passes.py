"""What only values show of a component: passes of noise tell whether it computes samples from each other, and whether
the network gives probabilities."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch

from alray.core.errors import FAULTS_OF_USER_CODE
from alray.core.randomness.generators import put_back, seed_all
from alray.models.component import read
from alray.models.encoder import Tensors
from alray.models.shape import Shape

if TYPE_CHECKING:
    from alray.models.network import Network

_OTHERS = 3
"""Samples of a mini-batch of noise besides the first one."""
_ROUNDING = 1e2
"""How far values of one computation may be apart, as a multiple of the precision of their type."""
_SHARE = 1e-2
"""How far from 1 the sum of probabilities may be: they may be rounded to bfloat16."""
_CPU = torch.device("cpu")


def mixes_samples(network: Network, index: int) -> bool:
    """Whether what component `index` gives for a sample in training depends on the other samples of the mini-batch, as
    by batch normalisation: the first sample stays, and the others change. Random numbers stay too.

    Where that cannot be told, because the component takes no noise or gives something else each time, it is whether
    there is batch normalisation.
    """
    try:
        first, again, other = (_passed(network, index, others) for others in (1, 1, 2))
    except FAULTS_OF_USER_CODE:
        return network.has_batch_norm(index)
    return not _close(first, other) if _close(first, again) else network.has_batch_norm(index)


def gives_probabilities(network: Network) -> bool:
    """Whether a user's code ends in a softmax or, where each label is by itself, in a sigmoid, though losses take
    scores. Of a component that takes no noise it is not known."""
    last, label = len(network) - 1, network.spec.task.label
    if not network.encoders[last].own or network.method.gives_shares or label not in ("class", "tokens", "flags"):
        return False
    try:
        given = _passed(network, last, 1, training=False)
        shape = network.method.task.learning.score_shape
        found = [name for name, each in given.items() if each.shape[1:] == shape and not _beyond(each)]
        if label != "flags" or not found:
            return any(bool(_sums_to_1(given[name])) for name in found)
        # The scores of a few samples may lie there by chance, but not also those by other, large weights.
        drawn = _passed(network, last, 1, training=False, drawn=True)
    except FAULTS_OF_USER_CODE:
        return False
    return any(not _beyond(drawn[name]) for name in found)


def _beyond(values: torch.Tensor) -> bool:
    """Whether one of the values is no probability."""
    return bool(((values < 0) | (values > 1)).any())


def _sums_to_1(values: torch.Tensor) -> bool:
    return bool(((values.sum(-1) - 1).abs() < _SHARE).all())


def _passed(network: Network, index: int, others: int, *, training: bool = True, drawn: bool = False) -> Tensors:
    """What component `index`, made anew on the CPU, gives for a mini-batch of noise: `s`, and `scores` if a route ends
    at it. Global generators stay as they were.

    Args:
        others: seed of all samples but the first.
        drawn: whether its parameters are drawn from a normal distribution.
    """
    facts = network.encoders[index]
    eager = torch.compiler.set_stance("force_eager") if network.spec.run.compile else nullcontext()
    with put_back(), torch.no_grad(), eager:
        component = network.component(index, _CPU).train(training)
        if drawn:
            seed_all(_CPU, network.spec.seed, "noise", index)
            for parameter in component.parameters():
                parameter.normal_()
        incoming: Tensors = {
            name: _noise(shape, others) for name, shape in {"s": facts.input, **facts.takes_along}.items()
        }
        outgoing = component.f.run(incoming, 0)
        if component.turn is None:
            return {"s": outgoing["s"]}
        return {"s": outgoing["s"], "scores": read(component.turn, outgoing)}


def _noise(shape: Shape, others: int) -> torch.Tensor:
    """Samples of this shape, `[N, *shape]`, all of whose positions are words."""

    def rows(count: int, seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        if shape.several is not None:
            return shape.several.noise(count, generator)
        if shape.dtype == torch.bool:
            return torch.ones((count, *shape), dtype=torch.bool)
        if shape.whole_numbers is not None:
            return torch.randint(shape.whole_numbers, (count, *shape), generator=generator, dtype=shape.dtype)
        return torch.randn((count, *shape), generator=generator, dtype=shape.dtype)

    return torch.cat([rows(1, 0), rows(_OTHERS, others)])


def _close(one: Tensors, other: Tensors) -> bool:
    """Whether two passes give the same for the first sample."""
    return all(
        torch.allclose(one[name][0], other[name][0], rtol=_ROUNDING * torch.finfo(one[name].dtype).eps, equal_nan=True)
        for name in one
    )
