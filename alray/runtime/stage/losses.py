"""Losses of a mini-batch as numbers, and whether they are finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch

from alray.core.errors import NonFiniteLoss

LossValues = dict[int, dict[str, float]]
"""Losses of one mini-batch: component (counted from 0) -> name of the loss -> value."""


def finite_values(
    losses: Mapping[int, Mapping[str, torch.Tensor]], step: int, samples: int | None = None
) -> LossValues:
    """Losses as numbers. Raises NonFiniteLoss where one is infinite or not a number.

    They are read all at once: each reading waits until a GPU has done all that it was given.

    Args:
        samples: of the mini-batch, on this replica. Of one sample a loss that compares samples has no value.
    """
    numbers = iter(_stacked([loss for named in losses.values() for loss in named.values()]).tolist())
    values = {index: {name: next(numbers) for name in named} for index, named in losses.items()}
    for index, named in values.items():
        for name, value in named.items():
            if not math.isfinite(value):
                if samples == 1:
                    raise NonFiniteLoss(
                        f"component {index}: the {name} loss is {value} at mini-batch {step}, of one sample",
                        key="data.batch_size",
                        hint="a loss that compares samples needs two: raise data.batch_size or drop the last one",
                    )
                raise NonFiniteLoss(
                    f"component {index}: the {name} loss is {value} at mini-batch {step}",
                    hint="lower optimizer.lr or set optimizer.clip_norm; checkpoints from before it are kept",
                )
    return values


def all_finite(losses: Iterable[torch.Tensor]) -> bool:
    """Whether none of the losses, scalars, is infinite or not a number; read all at once."""
    return bool(_stacked(losses).isfinite().all())


def _stacked(losses: Iterable[torch.Tensor]) -> torch.Tensor:
    """The scalars as one flat tensor."""
    held = [loss.reshape(()) for loss in losses]
    return torch.stack(held) if held else torch.empty(0)
