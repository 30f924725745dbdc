"""Several inputs of one sample, such as the numbers of tokens and their mask, or two pictures.

They travel as one row of numbers, and are several again where a model is called. Rows are float32 where all inputs are;
else they are int64, in which a floating-point number stands as its bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from alray.core.errors import DataError
from alray.models.shape import Shape

OF_MODEL = "alray_several"
"""The attribute of a model that is called with several inputs."""


@dataclass(frozen=True)
class Several:
    """The inputs of `forward`.

    Attributes:
        names: of its arguments; (): they are given by place.
        shapes: of one sample each; of type float32, int64 with `numbers`, or bool.
    """

    names: tuple[str, ...]
    shapes: tuple[Shape, ...]

    @property
    def dtype(self) -> torch.dtype:
        """The type of a row."""
        return torch.float32 if all(each.dtype.is_floating_point for each in self.shapes) else torch.int64

    @property
    def row(self) -> Shape:
        """The shape of a sample as it travels."""
        return Shape((sum(each.elements for each in self.shapes),), self.dtype, several=self)

    def packed(self, values: Mapping[str, Tensor] | Sequence[Tensor]) -> Tensor:
        """`[N, *shape]` each -> rows `[N, elements]`. Whole numbers of any type are taken, and uint8 of a
        floating-point input is scaled to 0..1. Raises DataError for other names."""
        if isinstance(values, Mapping) and values.keys() != set(self.names):
            has = f"the inputs `{'`, `'.join(self.names)}`" if self.names else "inputs by place"
            raise DataError(f"a sample has {has}, and not `{'`, `'.join(values)}`", key="data", hint="give those")
        ordered = [values[name] for name in self.names] if isinstance(values, Mapping) else values
        return torch.cat([self._flat(*each) for each in zip(ordered, self.shapes, strict=True)], 1)

    def _flat(self, value: Tensor, shape: Shape) -> Tensor:
        if not shape.dtype.is_floating_point:
            return value.reshape(len(value), -1).to(torch.int64)
        value = value.to(torch.float32).div(255.0) if value.dtype == torch.uint8 else value.to(torch.float32)
        flat = value.reshape(len(value), -1).contiguous()
        return flat if self.dtype == torch.float32 else flat.view(torch.int32).to(torch.int64)

    def unpacked(self, rows: Tensor, dtype: torch.dtype) -> list[Tensor]:
        """The inputs of rows `[N, elements]`, floating-point ones in a type."""
        found: list[Tensor] = []
        begun = 0
        for shape in self.shapes:
            value = rows[:, begun : begun + shape.elements]
            begun += shape.elements
            if shape.dtype.is_floating_point and self.dtype == torch.int64:
                value = value.to(torch.int32).view(torch.float32)
            of_input = dtype if shape.dtype.is_floating_point else shape.dtype
            found.append(value.to(of_input).reshape(-1, *shape).contiguous())
        return found

    def noise(self, count: int, drawn: torch.Generator) -> Tensor:
        """Random rows. What is 0 or 1 at each position, as a mask is, begins with ones, and each sample but the first
        has fewer of them than the one before."""
        return self.packed([_noise(shape, count, drawn) for shape in self.shapes])

    def called(self, model: nn.Module, rows: Tensor, **named: Any) -> Any:
        """What a model gives for these rows."""
        dtype = next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)
        values = self.unpacked(rows, rows.dtype if rows.is_floating_point() else dtype)
        return model(**dict(zip(self.names, values, strict=True)), **named) if self.names else model(*values, **named)

    def as_json(self) -> list[tuple[str | None, tuple[int | str, ...], int | None]]:
        """The name, shape and `numbers` of each."""
        names = self.names or (None,) * len(self.shapes)
        return [(name, tuple(shape.as_json()), shape.numbers) for name, shape in zip(names, self.shapes, strict=True)]

    @classmethod
    def from_json(cls, values: Sequence[tuple[str | None, Sequence[int | str], int | None]]) -> Several:
        """The inputs of which `as_json` gave `values`."""
        names = tuple(name for name, _, _ in values if name is not None)
        shapes = (Shape.from_json([*shape], Shape((), numbers=numbers)) for _, shape, numbers in values)
        return cls(names, tuple(shapes))


def _noise(shape: Shape, count: int, drawn: torch.Generator) -> Tensor:
    size = (count, *shape)
    if shape.dtype.is_floating_point:
        return torch.randn(size, generator=drawn)
    if len(shape) != 1 or (shape.numbers or 2) > 2:
        least = int(not shape)  # a number of its own may be a length
        return torch.randint(least, max(shape.numbers or 2, least + 1), size, generator=drawn)
    lengths = torch.tensor([max(shape[0] - number * shape[0] // count, 1) for number in range(count)])
    return (torch.arange(shape[0]) < lengths.unsqueeze(1)).long()
