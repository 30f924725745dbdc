"""Gradients are sent and summed as bfloat16 in torch's DDP."""

from __future__ import annotations

from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from alray.runtime.channel.ddp_compression import HalfDdp


class BFloat16Ddp(HalfDdp):
    """torch's hook."""

    hook = staticmethod(default_hooks.bf16_compress_hook)
