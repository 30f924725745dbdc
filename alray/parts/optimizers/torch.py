"""Any optimizer of torch.optim, by the name of its class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from alray.config.sections.optimizer import ForeignSection
from alray.core.errors import SpecError

if TYPE_CHECKING:
    from torch import nn

    from alray.models.optimizers import Chosen, Role


class TorchOptimizer(ForeignSection, extra="allow"):
    """Any optimizer of torch.optim; the keys that are not listed here go to its constructor."""

    implementation = "chosen"

    kind: Literal["torch"]
    """`torch`."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z]\w*$")]
    """Class of torch.optim, such as NAdam."""


def chosen(
    section: TorchOptimizer, parameters: Sequence[nn.Parameter], roles: Mapping[nn.Parameter, Role]
) -> list[Chosen]:
    """Raises SpecError if torch has no such optimizer."""
    import torch

    from alray.models.optimizers import Chosen

    kind = getattr(torch.optim, section.name, None)
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        raise SpecError(
            f"torch.optim has no optimizer `{section.name}`",
            key="optimizer.name",
            hint="write the name of a class of torch.optim, such as NAdam",
        )
    return [Chosen(kind, parameters, section.fields)]
