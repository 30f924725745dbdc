"""`replicas.compression: powersgd`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.compression import CompressionSection
from alray.config.sections.section import NonNegativeInt, PositiveInt


class PowerSgd(CompressionSection):
    """PowerSGD (Vogels et al. 2019, arXiv 1905.13727): a matrix is sent as two thin factors.

    It uses error feedback and a warm start. Parameters of one dimension are sent unchanged.
    """

    implementation = "compression:PowerSgdCompression"

    kind: Literal["powersgd"]
    """`powersgd`."""
    rank: PositiveInt = 2
    """Number of columns of the factors. More columns send more bytes and lose less precision. Default: 2."""
    start_iteration: NonNegativeInt = 0
    """Number of updates at the start of a run without compression. Default: 0."""
