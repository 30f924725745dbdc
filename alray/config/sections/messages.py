"""`pipeline.messages`: how what passes between components is compressed."""

from __future__ import annotations

from alray.config.sections.compression import Compression
from alray.config.sections.section import Section


class Messages(Section):
    """Compression of what passes between components, whether or not a stage ends there, in training and in evaluations:
    outputs, and in pipelines of backpropagation their gradients. Every partition gives the same weights, bit for bit.
    Labels, masks and other whole numbers are sent unchanged, and so is the label chain."""

    compression: Compression
    """Compression of outputs: a section with `kind`, or the bare name of a kind. Of those that replicas have: none,
    bf16, fp16 and top_k; besides int8, int4, int3_5 and int3."""
    gradients: Compression | None = None
    """Compression of the gradients that come down in backpropagation, as a section or a name. With local losses no
    gradient travels. null: as `compression`."""

    @property
    def of_gradients(self) -> Compression:
        """The compression of gradients, with null resolved."""
        return self.compression if self.gradients is None else self.gradients
