"""The compression `int8`, of messages."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.compression import LevelsSection


class Int8(LevelsSection):
    """Values are rounded to 256 levels between the least and the largest one, 8 bits each."""

    of_messages = "message:Int8Messages"

    kind: Literal["int8"]
    """`int8`."""
