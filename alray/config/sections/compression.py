"""`replicas.compression`: how gradients are compressed before they are sent."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import ConfigDict

from alray.config.sections.kind import Kind, PartSection
from alray.config.sections.own_code import Name, OfPackage, OwnCode


class CompressionSection(PartSection):
    """How gradients are compressed before they are sent. The keys of every compression."""

    sent_share: ClassVar[float | None] = None
    """Bytes that are sent for each byte of a float32 gradient; None where that depends on shapes."""

    kind: str
    """Name of the compression."""


class OwnCompression(OwnCode, CompressionSection):
    """A compression of the user; the keys that are not listed here go to its constructor."""

    model_config = ConfigDict(extra="allow")

    kind: Annotated[Name, OfPackage("alray.compressions")]
    """The class, as `python:package.module.Class`, or the name that an installed package gives it. It derives from
    `alray.runtime.channel.compression.Compression`."""


COMPRESSIONS = Kind("compressions", CompressionSection, OwnCompression, default="none")
"""All compressions."""
Compression = Annotated[CompressionSection, COMPRESSIONS]
