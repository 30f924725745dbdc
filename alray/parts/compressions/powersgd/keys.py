"""`replicas.compression: powersgd`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from alray.config.sections.compression import CompressionSection
from alray.config.sections.kind import Begin, Finding, MiniBatches
from alray.config.sections.paths import Path
from alray.config.sections.section import NonNegativeInt, PositiveInt

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec

_LEAST_START = 2  # of torch's hook with error feedback: DDP rebuilds its buckets in the first two mini-batches


class PowerSgd(CompressionSection):
    """PowerSGD (Vogels et al. 2019, arXiv 1905.13727): a matrix is sent as two thin factors.

    It uses error feedback and a warm start. Parameters of one dimension are sent unchanged.
    """

    implementation = "compression:PowerSgdCompression"
    by_ddp = "ddp:PowerSgdDdp"
    ddp_begins_anew = True
    keeps_error = True

    kind: Literal["powersgd"]
    """`powersgd`."""
    rank: PositiveInt = 2
    """Number of columns of the factors. More columns send more bytes and lose less precision. Default: 2."""
    start_iteration: NonNegativeInt = 0
    """Number of updates at the start of a run without compression. Default: 0."""

    def begins(self, mini_batches: MiniBatches) -> Iterator[Begin]:
        yield "start_iteration", self.start_iteration + 1, "whose gradients are compressed"

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        yield from super().faults(spec, at)
        if at[0] == "replicas" and spec.replicas.engine == "ray_train" and self.start_iteration < _LEAST_START:
            yield (
                (*at, "start_iteration"),
                f"torch's hook compresses from update {_LEAST_START} on at the earliest, got {self.start_iteration}",
                f"set it to {_LEAST_START} or more, or replicas.engine to graph",
            )
