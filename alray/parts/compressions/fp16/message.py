"""Messages between components as 16-bit floats: half the bytes, the largest value is 65,504."""

from __future__ import annotations

import torch

from alray.models.message_compression import HalfMessages


class Float16Messages(HalfMessages):
    """A value is rounded to the nearest one of the type."""

    type_sent = torch.float16
