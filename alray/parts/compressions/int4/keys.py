"""The compression `int4`, of messages."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.compression import LevelsSection


class Int4(LevelsSection):
    """Values are rounded to 16 levels between the least and the largest one, 4 bits each."""

    of_messages = "message:Int4Messages"

    kind: Literal["int4"]
    """`int4`."""
