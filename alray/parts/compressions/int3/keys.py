"""The compression `int3`, of messages."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.compression import LevelsSection


class Int3(LevelsSection):
    """Values are rounded to 8 levels between the least and the largest one, 3 bits each."""

    of_messages = "message:Int3Messages"

    kind: Literal["int3"]
    """`int3`."""
