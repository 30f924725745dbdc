"""The exponential moving average of a component's weights (`optimizer.ema_decay`).

With w(t) the weights after update t and d the decay,

    m(1) = w(1),    m(t) = d m(t-1) + (1 - d) w(t)

as `torch.optim.swa_utils.AveragedModel` computes it with `get_ema_multi_avg_fn(d)`. Buffers of floating point, such as
the running statistics of batch normalisation, are averaged alike: as mini-batch t left them, though a pipeline without
a flush makes update t after forwards of the next mini-batch. A parameter that does not learn is not averaged, which
saves the memory of an average of frozen weights: a codebook that `forward` changes stays as it is, unless it is a
buffer. The average is of one component, so it does not depend on
the partition; training never reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from alray.core.compat import foreach_lerp_


class WeightAverage:
    """The average of the weights of a module that training changes, and of its buffers that a checkpoint has.

    There is none before the first update: until then the weights stand for it.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        """
        Args:
            decay: d, between 0 and 1.
        """
        self._module = module
        self._decay = decay
        # A block may freeze one of them during the run. The optimizer has been made for these, too.
        self._parameters = {value for value in module.parameters() if value.requires_grad}
        self._means: dict[str, torch.Tensor] = {}
        self._kept: dict[str, torch.Tensor] = {}  # buffers for the next update

    def keep_buffers(self) -> None:
        """Keep a copy of the buffers as they are now: the next update takes it, whatever changes them before. Buffers
        that an earlier call kept, and no update took, are forgotten."""
        self._kept = _copies(
            {name: value for name, value in self._averaged().items() if not isinstance(value, nn.Parameter)}
        )

    @torch.no_grad()
    def update(self) -> None:
        """Take the weights after an update into the average."""
        held = self._averaged() | self._kept
        self._kept = {}
        # A buffer may come, grow or go during the run: its average begins with the shape that it has.
        old = {name: mean for name, mean in self._means.items() if name in held and mean.shape == held[name].shape}
        new = _copies({name: value for name, value in held.items() if name not in old})
        self._means = means = {name: old[name] if name in old else new[name] for name in held}
        weights = [name for name in old if isinstance(held[name], nn.Parameter)]
        share = 1.0 - self._decay
        if weights:
            foreach_lerp_([means[name] for name in weights], [held[name] for name in weights], share)
        for name in old.keys() - set(weights):
            mean, value = means[name], held[name]
            # A mask has minus infinity, whose difference from itself is not a number.
            mean.copy_(torch.where(mean == value, value, torch.lerp(mean, value, share)))

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Within it, the module has the average in place of its weights."""
        held = {name: tensor for name, tensor in self._averaged().items() if name in self._means}
        own = {name: tensor.data for name, tensor in held.items()}
        try:
            for name, tensor in held.items():
                tensor.data = self._means[name]
            yield
        finally:
            for name, tensor in held.items():
                tensor.data = own[name]

    def trained(self) -> dict[str, torch.Tensor]:
        """The weights and buffers with which training goes on, by name; empty before the first update."""
        return {name: tensor.detach() for name, tensor in self._averaged().items()} if self._means else {}

    def load(self, trained: Mapping[str, torch.Tensor]) -> None:
        """Continue from a checkpoint, whose average the module has: it is kept, and the module takes what `trained`
        gave. If that is empty, the average begins with the next update. Where no parameter learns any more no update
        follows, and there is no average.

        Raises KeyError if a tensor is missing.
        """
        averaged = self._averaged()
        self._means = _copies(averaged) if trained and self._parameters else {}
        _put(self._module, averaged, trained)

    def _averaged(self) -> dict[str, torch.Tensor]:
        return _averaged(self._module, self._parameters)

    def state_bytes(self, *, late: bool) -> int:
        """Bytes of the average.

        Args:
            late: an update comes after forwards of the next mini-batch, so buffers are kept for it (`keep_buffers`).
        """
        held = self._averaged().values()
        copies = [*held, *(each for each in held if late and not isinstance(each, nn.Parameter))]
        return sum(tensor.numel() * tensor.element_size() for tensor in copies)


def _averaged(module: nn.Module, parameters: Collection[nn.Parameter]) -> dict[str, torch.Tensor]:
    """The tensors of a module that are averaged, by their names in a checkpoint: these parameters, and buffers of
    floating point that a checkpoint has."""
    saved = module.state_dict()
    held = {name: value for name, value in module.named_parameters() if value in parameters}
    held_buffers = {name: value for name, value in module.named_buffers() if value.is_floating_point()}
    kept = {name: value for name, value in {**held, **held_buffers}.items() if name in saved}
    return {name_in_checkpoint(name): value for name, value in kept.items()}


def name_in_checkpoint(name: str) -> str:
    """The name of a component's parameter or buffer in a checkpoint: the encoder's body is not named."""
    # Another part may hold an encoder too, and `Component.load_weights` finds the way back for `f` alone.
    return f"f.{name.removeprefix('f.body.')}" if name.startswith("f.body.") else name


def go_on_with(module: nn.Module, trained: Mapping[str, torch.Tensor]) -> None:
    """Put weights and buffers that `WeightAverage.trained` gave in place.

    Raises KeyError if a tensor is missing.
    """
    _put(module, _averaged(module, {value for value in module.parameters() if value.requires_grad}), trained)


@torch.no_grad()
def _put(module: nn.Module, averaged: Mapping[str, torch.Tensor], trained: Mapping[str, torch.Tensor]) -> None:
    """Put these values in place, also those of parameters that learnt then and are frozen now: whatever learns above
    them has trained with these, and not with their average."""
    held = _averaged(module, set(module.parameters()))
    for name in averaged.keys() | trained.keys() if trained else ():
        held[name].copy_(trained[name])


def _copies(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
