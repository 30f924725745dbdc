"""The compression `none`, of replicas and of messages."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.compression import CompressionSection


class NoCompression(CompressionSection):
    """Values are sent unchanged."""

    implementation = "compression:Uncompressed"
    of_messages = "message:UncompressedMessages"
    by_ddp = "ddp:UncompressedDdp"
    sent_share = 1.0

    kind: Literal["none"] = "none"
    """`none`."""

    def share_sent(self, value_bytes: int) -> float:
        return 1.0
