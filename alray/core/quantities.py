"""Texts with a unit: `25 GB/s`, `100 Mbit/s`, `20 ms`, `24GB`."""

from __future__ import annotations

import re
from collections.abc import Mapping

BITS_PER_S = {
    **{"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9},
    **{"kB/s": 8e3, "MB/s": 8e6, "GB/s": 8e9, "TB/s": 8e12},
}
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
BYTES = {"MB": 1e6, "GB": 1e9, "TB": 1e12, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
OPERATIONS_PER_S = {"GFLOP/s": 1e9, "TFLOP/s": 1e12}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"


def pattern(units: Mapping[str, float]) -> str:
    """The regular expression of a number with one of these units."""
    return rf"^{_NUMBER} *({'|'.join(units)})$"


def value_of(text: str, units: Mapping[str, float]) -> float | None:
    """The value in the unit of factor 1; None if the text has another form."""
    match = re.fullmatch(pattern(units), text)
    return float(match[1]) * units[match[2]] if match is not None else None
