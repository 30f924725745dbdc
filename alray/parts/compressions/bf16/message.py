"""Messages between components as bfloat16: half the bytes, the range of float32, 8 bits of precision."""

from __future__ import annotations

import torch

from alray.models.message_compression import HalfMessages


class BFloat16Messages(HalfMessages):
    """A value is rounded to the nearest one of the type."""

    type_sent = torch.bfloat16
