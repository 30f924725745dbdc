"""Messages between components in 3 bits a value."""

from __future__ import annotations

from alray.models.levels import LevelMessages


class Int3Messages(LevelMessages):
    """8 levels."""

    levels = 8
