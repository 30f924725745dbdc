"""Messages between components in 8 bits a value."""

from __future__ import annotations

from alray.models.levels import LevelMessages


class Int8Messages(LevelMessages):
    """256 levels."""

    levels = 256
