"""`optimizer: {kind: torch, name: NAdam}`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from alray.config.sections.optimizer import ForeignSection


class TorchOptimizer(ForeignSection, extra="allow"):
    """Any optimizer of torch.optim; the keys that are not listed here go to its constructor."""

    implementation = "optimizer:chosen"

    kind: Literal["torch"]
    """`torch`."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z]\w*$")]
    """Class of torch.optim, such as NAdam."""
