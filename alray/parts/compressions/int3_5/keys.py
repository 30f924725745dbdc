"""The compression `int3_5`, of messages."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.compression import LevelsSection


class Int3Half(LevelsSection):
    """Values are rounded to 11 levels between the least and the largest one, 3.5 bits each: two of them in 7 bits. That
    leaves room for scales and labels in an eighth of the bytes."""

    of_messages = "message:Int3HalfMessages"

    kind: Literal["int3_5"]
    """`int3_5`."""
