"""`replicas.compression: qsgd`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.compression import CompressionSection
from alray.config.sections.section import PositiveInt


class Qsgd(CompressionSection):
    """QSGD (Alistarh et al. 2017, arXiv 1610.02132): gradients are rounded at random to a few levels.

    On average nothing is lost, so it keeps no error. Levels of different replicas cannot be added up on the way: each
    replica receives those of all others.
    """

    implementation = "compression:QsgdCompression"

    kind: Literal["qsgd"]
    """`qsgd`."""
    bits: Literal[2, 4, 8] = 8
    """Number of bits of a gradient: 2, 4 or 8, for 3, 15 or 255 levels. Default: 8."""
    bucket: PositiveInt = 512
    """Number of gradients that share one scale, which is sent with them. Default: 512."""
