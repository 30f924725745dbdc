"""Messages between components as they are."""

from __future__ import annotations

from alray.models.message_compression import MessageCompression


class UncompressedMessages(MessageCompression):
    """Nothing is changed."""

    changes = False
