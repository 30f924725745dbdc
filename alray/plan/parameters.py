"""Which parameters a route of inference uses (the effective ones) and which it does not (the affiliate ones)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_EVERY_COMPONENT = ("f", "h")
_TURNING_POINT = ("b", "head")


def route_parameters(parts: Sequence[Mapping[str, int]], depth: int) -> int:
    """The number of trainable scalars that the route of this depth uses.

    These are f and h of components 1 to `depth`, and b or head of the last of them.

    parts: for each component in order, its trainable scalars by part (f, b, g, h; f and p; f and head). The label
    encoders g and the projections p are used in training only, and so are all bridges b except the one at which the
    route turns (T.-H. Lin, thesis, 2023). With backpropagation all parameters are effective.
    """
    along = sum(part.get(name, 0) for part in parts[:depth] for name in _EVERY_COMPONENT)
    return along + sum(parts[depth - 1].get(name, 0) for name in _TURNING_POINT)
