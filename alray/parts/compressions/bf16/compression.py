"""Gradients are sent and summed as bfloat16: half the bytes, the range of float32, 8 bits of precision."""

from __future__ import annotations

import torch

from alray.runtime.channel.compression import Half


class BFloat16(Half):
    """8 bits of precision, the range of float32."""

    type_sent = torch.bfloat16
