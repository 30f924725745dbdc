"""`replicas.compression: top_k`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from alray.config.sections.compression import CompressionSection


class TopK(CompressionSection):
    """Only the entries of largest magnitude are sent. The others are added to the next gradient (error feedback)."""

    implementation = "compression:TopKCompression"

    kind: Literal["top_k"]
    """`top_k`."""
    fraction: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Share in 0..1 of a component's gradient that is sent. Default: 0.01."""
