"""Texts with a unit: `25 GB/s`, `100 Mbit/s`, `20 ms`, `24GB`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from alray.core.errors import PlanError

BITS_PER_S = {
    **{"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9},
    **{"kB/s": 8e3, "MB/s": 8e6, "GB/s": 8e9, "TB/s": 8e12},
}
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
BYTES = {"MB": 1e6, "GB": 1e9, "TB": 1e12, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
OPERATIONS_PER_S = {"GFLOP/s": 1e9, "TFLOP/s": 1e12}
_LEAST_S, _LEAST, _MOST = 1e-18, 1.0, 1e18
"""Of seconds, and of everything else: a bit, a byte or an operation. What lies outside is no finite number where it is
divided by or counted in bytes, or rounds to zero there."""
_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"


def pattern(units: Mapping[str, float]) -> str:
    """The regular expression of a number with one of these units."""
    return rf"^{_NUMBER} *({'|'.join(units)})$"


def value_of(text: str, units: Mapping[str, float]) -> float | None:
    """The value in the unit of factor 1; None if the text has another form.

    Raises PlanError for a number that is too small or too large to count with; 0 is neither.
    """
    match = re.fullmatch(pattern(units), text)
    if match is None:
        return None
    value, size = float(match[1]) * units[match[2]], units[match[2]]
    least = _LEAST_S if units is SECONDS else _LEAST
    if value > _MOST or (value < least and set(match[1].partition("e")[0]) - {"0", "."}):
        raise PlanError(
            f"`{text}` is too {'small' if value < least else 'large'} to count with",
            hint=f"write a number from {least / size:.3g} to {_MOST / size:.3g} {match[2]}",
        )
    return value
