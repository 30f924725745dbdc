"""Any optimizer of torch.optim for all parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from alray.core.errors import SpecError
from alray.models.optimizers import Chosen, Role
from alray.parts.optimizers.torch.keys import TorchOptimizer


def chosen(
    section: TorchOptimizer, parameters: Sequence[nn.Parameter], roles: Mapping[nn.Parameter, Role]
) -> list[Chosen]:
    """Raises SpecError if torch has no such optimizer."""
    kind = getattr(torch.optim, section.name, None)
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        raise SpecError(
            f"torch.optim has no optimizer `{section.name}`",
            key="optimizer.name",
            hint="write the name of a class of torch.optim, such as NAdam",
        )
    return [Chosen(kind, parameters, section.fields)]
