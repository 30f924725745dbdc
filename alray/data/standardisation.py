"""Numbers of a table are standardised: by which means and deviations, and with how many digits."""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import NDArray

from alray.data.source import Normalisation

_ROUNDED_AWAY = 1e-4
"""Rounding by more than this part of a column's standard deviation loses what the column says."""


def type_of(values: NDArray[numpy.float64]) -> type[numpy.float32] | type[numpy.float64]:
    """The type in which the numbers [rows, columns] are standardised: float32, or float64 if float32 would round away a
    part of what a column says, as with a time in seconds since 1970. The network gets float32 in both cases."""
    for column in values.T:
        with numpy.errstate(over="ignore"):
            lost = numpy.abs(column - column.astype(numpy.float32)).max(initial=0.0)
        if lost > _ROUNDED_AWAY * column.std():
            return numpy.float64
    return numpy.float32


def fits_float32(mean: float, deviation: float) -> bool:
    """Whether float32 keeps what numbers of this mean and standard deviation say, as `type_of` has it."""
    return float(numpy.spacing(numpy.float32(abs(mean)))) / 2 <= _ROUNDED_AWAY * deviation


def standardisation_of(values: NDArray[Any]) -> Normalisation:
    """By the mean and the standard deviation of each column of [rows, columns]."""
    deviation = values.std(axis=0, dtype=numpy.float64)
    # A column that never changes says nothing; its computed deviation may be a little above zero.
    deviation[values.min(axis=0) == values.max(axis=0)] = 1.0
    return Normalisation(tuple(values.mean(axis=0, dtype=numpy.float64).tolist()), tuple(deviation.tolist()))
