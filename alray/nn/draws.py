"""Random numbers inside a component: drawn from (seed, component, step), and from nothing else."""

from __future__ import annotations

import torch
from torch import nn

from alray.seeds import derive_seed

_DRAWING = (
    nn.modules.dropout._DropoutNd,  # the common parent of every dropout layer
    nn.RReLU,
    nn.FractionalMaxPool2d,
    nn.FractionalMaxPool3d,
)


def module_draws(module: nn.Module) -> bool:
    """Whether a module built by alray draws random numbers in training."""
    for child in module.modules():
        if isinstance(child, _DRAWING):
            return True
        if getattr(child, "dropout", 0.0) and isinstance(child, nn.RNNBase | nn.MultiheadAttention):
            return True
    return False


def seed_draws(device: torch.device, seed: int, *purpose: str | int) -> None:
    """Point the generators a component may draw from at its own stream."""
    value = derive_seed(seed, *purpose)
    torch.default_generator.manual_seed(value)
    if device.type == "cuda":
        with torch.cuda.device(device):  # the current device may be another one
            torch.cuda.manual_seed(value)
