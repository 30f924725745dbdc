"""`replicas.compression: none`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.compression import CompressionSection


class NoCompression(CompressionSection):
    """Gradients are sent unchanged."""

    implementation = "compression:Uncompressed"
    sent_share = 1.0

    kind: Literal["none"] = "none"
    """`none`."""
