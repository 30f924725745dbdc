"""Gradients are sent and summed as 16-bit floats: half the bytes, the largest value is 65,504."""

from __future__ import annotations

import torch

from alray.runtime.channel.compression import Half


class Float16(Half):
    """11 bits of precision. A gradient above 65504 becomes infinite, one below 3e-8 becomes zero.

    Gradients are multiplied by the ranks' weights before, so only their average must be in range, not their plain sum.
    """

    type_sent = torch.float16
