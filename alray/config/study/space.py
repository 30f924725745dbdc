"""The distributions of a search: which values a key can have, and the value at a share in 0..1 of the distribution."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field, model_validator

from alray.config.sections.own_code import FreeValue
from alray.config.sections.section import Section, listed, refusal

_Range = Annotated[tuple[float, float], Field(strict=False)]


class Distribution(Section):
    """The distribution that one value is drawn from. Exactly one key is given."""

    choice: Annotated[tuple[FreeValue, ...], Field(strict=False, min_length=1)] | None = None
    """Values that are equally likely."""
    uniform: _Range | None = None
    """Smallest and largest value; all values between them are equally likely."""
    loguniform: _Range | None = None
    """Smallest and largest value, above 0; the logarithm of the value is uniform."""
    one_minus_loguniform: _Range | None = None
    """Smallest and largest value, below 1; the logarithm of 1 - value is uniform. For a momentum, such as
    [0.5, 0.999]."""
    integers: Annotated[tuple[int, int], Field(strict=False)] | None = None
    """Smallest and largest integer, both possible; all are equally likely."""

    @model_validator(mode="after")
    def _is_one(self) -> Distribution:
        kinds = list(type(self).model_fields)
        given = [kind for kind in kinds if getattr(self, kind) is not None]
        if len(given) != 1:
            raise refusal(f"give exactly one of {listed(kinds, 'and')}", "write, for example, {loguniform: [1e-4, 1]}")
        bounds = getattr(self, given[0])
        if given[0] != "choice" and not bounds[0] < bounds[1]:
            raise refusal(f"[{bounds[0]:g}, {bounds[1]:g}] is empty", "give the smallest value, then the largest one")
        if self.loguniform is not None and bounds[0] <= 0:
            raise refusal(f"the logarithm of {bounds[0]:g} does not exist", "begin above 0")
        if self.one_minus_loguniform is not None and bounds[1] >= 1:
            raise refusal(f"the logarithm of 1 - {bounds[1]:g} does not exist", "end below 1")
        return self

    def at(self, share: float) -> Any:
        """The value below which this share of the distribution lies.

        Args:
            share: in 0..1, 1 excluded.
        """
        if self.choice is not None:
            return self.choice[int(share * len(self.choice))]
        if self.integers is not None:
            first, last = self.integers
            return first + int(share * (last - first + 1))
        if self.one_minus_loguniform is not None:
            low, high = self.one_minus_loguniform
            return 1.0 - _between_logarithms(1.0 - low, 1.0 - high, share)
        if self.loguniform is not None:
            return _between_logarithms(*self.loguniform, share)
        assert self.uniform is not None
        return self.uniform[0] + share * (self.uniform[1] - self.uniform[0])

    def share(self, value: Any) -> float | None:
        """The share of the distribution that lies below a value, in 0..1: what `at` is the inverse of. None for a
        choice, whose values have no order."""
        if self.choice is not None:
            return None
        low, high = self.ends
        if self.loguniform is not None:
            low = math.log(low)
            high = math.log(high)
            value = math.log(value)
        elif self.one_minus_loguniform is not None:
            low = -math.log(1.0 - low)
            high = -math.log(1.0 - high)
            value = -math.log(1.0 - value)
        return float((value - low) / (high - low))

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values at the ends of the range; of a choice all values."""
        if self.choice is not None:
            return self.choice
        return next(bounds for bounds in vars(self).values() if bounds is not None)


def _between_logarithms(first: float, last: float, share: float) -> float:
    value = math.exp(math.log(first) + share * (math.log(last) - math.log(first)))
    return min(max(value, min(first, last)), max(first, last))  # rounding may pass the ends
