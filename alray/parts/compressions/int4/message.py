"""Messages between components in 4 bits a value."""

from __future__ import annotations

from alray.models.levels import LevelMessages


class Int4Messages(LevelMessages):
    """16 levels."""

    levels = 16
