"""How the gradients of one component lie in one flat buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Layout:
    """Shapes of a component's parameters in their order, and the one dtype and device of their gradients."""

    shapes: tuple[torch.Size, ...]
    dtype: torch.dtype = torch.float32
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @classmethod
    def of(cls, parameters: Sequence[torch.Tensor]) -> Layout:
        """The layout of these parameters' gradients; of no parameters, an empty float32 one."""
        if not parameters:
            return cls(())
        return cls(tuple(parameter.shape for parameter in parameters), parameters[0].dtype, parameters[0].device)

    @property
    def sizes(self) -> list[int]:
        """Elements of each parameter."""
        return [shape.numel() for shape in self.shapes]

    @property
    def num_elements(self) -> int:
        return sum(self.sizes)

    def zeros(self) -> torch.Tensor:
        """A flat buffer for all gradients, in parameter order."""
        return torch.zeros(self.num_elements, dtype=self.dtype, device=self.device)

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """The gradients within a flat buffer."""
        pieces = flat.split(self.sizes)
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]
