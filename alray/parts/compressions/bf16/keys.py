"""The compression `bf16`, of replicas and of messages."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.compression import CompressionSection


class Bf16(CompressionSection):
    """Values are sent as bfloat16: half the bytes, the range of float32, 8 bits of precision. Replicas also sum
    gradients in this type."""

    implementation = "compression:BFloat16"
    of_messages = "message:BFloat16Messages"
    by_ddp = "ddp:BFloat16Ddp"
    sent_share = 0.5

    kind: Literal["bf16"]
    """`bf16`."""
