"""The layout of one component's gradients in one flat buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class GradientLayout:
    """The shapes of a component's parameters, in order, and the dtype and device of their gradients."""

    shapes: tuple[torch.Size, ...]
    dtype: torch.dtype = torch.float32
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @classmethod
    def of(cls, parameters: Sequence[torch.Tensor]) -> GradientLayout:
        """Return the layout of these parameters' gradients. Without parameters it is empty and float32."""
        if not parameters:
            return cls(())
        return cls(tuple(parameter.shape for parameter in parameters), parameters[0].dtype, parameters[0].device)

    @property
    def sizes(self) -> list[int]:
        """The number of elements of each parameter."""
        return [shape.numel() for shape in self.shapes]

    @property
    def num_elements(self) -> int:
        return sum(self.sizes)

    def zeros(self) -> torch.Tensor:
        """Return a flat buffer for all gradients, in parameter order."""
        return torch.zeros(self.num_elements, dtype=self.dtype, device=self.device)

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Return each parameter's gradient as a view of the flat buffer."""
        pieces = flat.split(self.sizes)
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]
