"""The compression `top_k`, of replicas and of messages."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from alray.config.sections.compression import CompressionSection


class TopK(CompressionSection):
    """Only the values of largest magnitude are sent. Replicas add the others to the next gradient (error feedback);
    messages do not, for the next ones are of other samples."""

    implementation = "compression:TopKCompression"
    of_messages = "message:TopKMessages"
    keeps_error = True

    kind: Literal["top_k"]
    """`top_k`."""
    fraction: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Share in 0..1 of the values that are sent, at least one: of a component's gradient between replicas; in a message
    of each sample, and of a sequence of each position. Default: 0.01."""
