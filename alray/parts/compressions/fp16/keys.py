"""The compression `fp16`, of replicas and of messages."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.compression import CompressionSection


class Fp16(CompressionSection):
    """Values are sent as 16-bit floats: half the bytes, the largest value is 65,504. Replicas also sum
    gradients in this type."""

    implementation = "compression:Float16"
    of_messages = "message:Float16Messages"
    by_ddp = "ddp:Float16Ddp"
    sent_share = 0.5

    kind: Literal["fp16"]
    """`fp16`."""
