"""How tensors are compressed before they are sent: gradients of weights between replicas (`replicas.compression`), and
what passes between components (`pipeline.messages`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from alray.config.sections.kind import Finding, Kind, PartSection
from alray.config.sections.own_code import Name, OfPackage, OwnCode
from alray.config.sections.paths import Path
from alray.config.sections.section import Section, listed

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec

_FLOAT32_BYTES = 4


class CompressionSection(PartSection):
    """How tensors are compressed before they are sent. The keys of every compression."""

    of_messages: ClassVar[str] = ""
    """The code that compresses what passes between components, `file:name` in the folder of the part; "": it cannot.
    `implementation` is the code that compresses gradients of weights between replicas; "": it cannot."""
    by_ddp: ClassVar[str] = ""
    """The code that compresses gradients in torch's DDP, `file:name` in the folder of the part, derived from
    `alray.runtime.channel.ddp_compression.DdpCompression`; "": it cannot be used with `replicas.engine: ray_train`."""
    ddp_begins_anew: ClassVar[bool] = False
    """Whether that code keeps a state which no checkpoint contains."""
    sent_share: ClassVar[float | None] = None
    """Bytes that replicas send for each byte of a float32 gradient; None where that depends on shapes."""
    keeps_error: ClassVar[bool] = False
    """Whether replicas keep what it left out of a gradient, for the next one."""

    kind: str
    """Name of the compression."""

    def share_sent(self, value_bytes: int) -> float | None:
        """Bytes that replicas send for each byte of gradients whose values have so many; None where that depends on
        shapes."""
        return None if self.sent_share is None else self.sent_share * _FLOAT32_BYTES / value_bytes

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        between_replicas = at[0] == "replicas"
        if self.implementation if between_replicas else self.of_messages:
            return
        able = [
            name
            for name, section in COMPRESSIONS.sections.items()
            if (section.implementation if between_replicas else section.of_messages)
        ]
        what = "gradients of weights between replicas" if between_replicas else "what passes between components"
        yield at, f"`{self.kind}` does not compress {what}", f"choose {listed(able)}"


class OwnCompression(OwnCode, CompressionSection, extra="allow"):
    """A compression of the user; the keys that are not listed here go to its constructor."""

    kind: Annotated[Name, OfPackage("alray.compressions")]
    """The class, as `python:package.module.Class`, or the name that an installed package gives it. Between replicas it
    derives from `alray.runtime.channel.compression.Compression`, in `pipeline.messages` from
    `alray.models.message_compression.MessageCompression`."""

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        return iter(())  # its class says what it is when it is loaded


class LevelsSection(CompressionSection):
    """Values become whole numbers of four or eight bits."""

    scale: Literal["tensor", "token"] = "tensor"
    """Which values of a sample share a scale, which travels with them. `tensor`: all. `token`: those of a position of
    a sequence [T, D]; other samples have one scale in any case. Default: tensor."""


COMPRESSIONS = Kind("compressions", CompressionSection, OwnCompression, default="none")
"""All compressions."""
Compression = Annotated[CompressionSection, COMPRESSIONS]


class Messages(Section):
    """Compression of what passes between components, whether or not a stage ends there, in training and in evaluations:
    outputs, and in pipelines of backpropagation their gradients. Every partition gives the same weights, bit for bit.
    Labels, masks and other whole numbers are sent unchanged, and so is the label chain."""

    compression: Compression
    """Compression of outputs: a section with `kind`, or the bare name of a kind. Of those that replicas have: none,
    bf16, fp16 and top_k; besides int8 and int4."""
    gradients: Compression | None = None
    """Compression of the gradients that come down in backpropagation, as a section or a name. With local losses no
    gradient travels. null: as `compression`."""

    @property
    def of_gradients(self) -> Compression:
        """The compression of gradients, with null resolved."""
        return self.compression if self.gradients is None else self.gradients
