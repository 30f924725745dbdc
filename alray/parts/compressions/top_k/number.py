"""How many values are sent."""

from __future__ import annotations

import math
from fractions import Fraction


def number_sent(fraction: float, values: int) -> int:
    """The share of so many values, rounded up: of 100 values 0.07 is 7, though as floats it is a little more.

    Args:
        fraction: above 0 and at most 1, as the spec writes it.
    """
    return math.ceil(Fraction(str(fraction)) * values)
