"""`replicas.compression: fp16`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.compression import CompressionSection


class Fp16(CompressionSection):
    """Gradients are sent and summed as 16-bit floats: half the bytes, the largest value is 65,504."""

    implementation = "compression:Float16"
    sent_share = 0.5

    kind: Literal["fp16"]
    """`fp16`."""
