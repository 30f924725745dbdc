"""Which parameters a route of inference uses: the effective ones; the rest are affiliate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_EVERY_COMPONENT = ("f", "h")
_TURNING_POINT = ("b", "head")


def route_parameters(parts: Sequence[Mapping[str, int]], depth: int) -> int:
    """Trainable scalars that the route of this depth uses: f and h of components 1 to `depth`, b or head of the last.

    parts: of every component in order, its trainable scalars by part (f, b, g, h; f and p; f and head). The label
    encoders g and the projections p are used in training alone, and so is every bridge b but the one where the route
    turns (the division is that of T.-H. Lin's thesis, 2023). With backpropagation everything is effective.
    """
    along = sum(part.get(name, 0) for part in parts[:depth] for name in _EVERY_COMPONENT)
    return along + sum(parts[depth - 1].get(name, 0) for name in _TURNING_POINT)
