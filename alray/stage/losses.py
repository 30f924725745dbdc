"""The losses of a mini-batch as they are reported."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from alray.errors import NonFiniteLoss


def finite_values(losses: Mapping[int, Mapping[str, torch.Tensor]], step: int) -> dict[int, dict[str, float]]:
    """Scalars by component and name, as numbers. Raises NonFiniteLoss where one is infinite or not a number."""
    values = {index: {name: float(loss) for name, loss in named.items()} for index, named in losses.items()}
    for index, named in values.items():
        for name, value in named.items():
            if not math.isfinite(value):
                raise NonFiniteLoss(
                    f"component {index}: the {name} loss is {value} at mini-batch {step}",
                    mend="lower optimizer.lr or set optimizer.clip_norm; the last checkpoint before it is kept",
                )
    return values
