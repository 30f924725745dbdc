"""The compressions by their names in a spec."""

from __future__ import annotations

from typing import Any

from alray.runtime.channel.compression.compression import Compression
from alray.runtime.channel.compression.half import BFloat16, Float16
from alray.runtime.channel.compression.layout import GradientLayout
from alray.runtime.channel.compression.powersgd import PowerSGD
from alray.runtime.channel.compression.qsgd import QSGD
from alray.runtime.channel.compression.top_k import TopK
from alray.runtime.channel.compression.uncompressed import Uncompressed

COMPRESSIONS: tuple[str, ...] = tuple(kind.kind for kind in (Uncompressed, Float16, BFloat16, QSGD, PowerSGD, TopK))
"""The values of `replicas.compression.kind`."""


def make_compression(kind: str, layout: GradientLayout, *, seed: int = 0, **settings: Any) -> Compression:
    """Make a compression for gradients in this layout.

    Args:
        kind: one of `COMPRESSIONS`.
        seed: of random numbers (PowerSGD's first Q, QSGD's rounding); the same on every rank, different for every
            component.
        settings: the keyword arguments of `QSGD`, `PowerSGD` or `TopK`; the other kinds have none.
    """
    match kind:
        case QSGD.kind:
            return QSGD(layout, seed=seed, **settings)
        case PowerSGD.kind:
            return PowerSGD(layout, seed=seed, **settings)
        case TopK.kind:
            return TopK(layout, **settings)
    return {plain.kind: plain for plain in (Uncompressed, Float16, BFloat16)}[kind](**settings)
