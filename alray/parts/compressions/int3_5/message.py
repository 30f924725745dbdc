"""Messages between components in 3.5 bits a value."""

from __future__ import annotations

from alray.models.levels import LevelMessages


class Int3HalfMessages(LevelMessages):
    """11 levels: a pair is one of 121, in 7 bits."""

    levels = 11
    in_pairs = True
