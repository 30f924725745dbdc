"""Activations a spec can name."""

from __future__ import annotations

from torch import nn

_ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "relu": nn.ReLU}


def with_activation(layer: nn.Module, activation: str) -> nn.Sequential:
    """The layer, followed by the named activation (`none`: by nothing)."""
    if activation == "none":
        return nn.Sequential(layer)
    return nn.Sequential(layer, _ACTIVATIONS[activation]())
