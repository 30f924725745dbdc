"""`replicas.compression`: how gradients are compressed before they are sent."""

from __future__ import annotations

from typing import Annotated, ClassVar

from alray.config.sections.kind import Kind, PartSection


class CompressionSection(PartSection):
    """How gradients are compressed before they are sent. The keys of every compression."""

    sent_share: ClassVar[float | None] = None
    """Bytes that are sent for each byte of a float32 gradient; None where that depends on shapes."""

    kind: str
    """Name of the compression."""


COMPRESSIONS = Kind("compressions", CompressionSection, default="none")
"""All compressions."""
Compression = Annotated[CompressionSection, COMPRESSIONS]
