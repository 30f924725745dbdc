"""`replicas.compression: bf16`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.compression import CompressionSection


class Bf16(CompressionSection):
    """Gradients are sent and summed as bfloat16: half the bytes, the range of float32, 8 bits of precision."""

    implementation = "compression:BFloat16"
    sent_share = 0.5

    kind: Literal["bf16"]
    """`bf16`."""
