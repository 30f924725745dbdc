"""Bridges, label encoders, label decoders and the classifier head of backpropagation."""

from __future__ import annotations

from torch import nn

from alray.nn.activations import with_activation
from alray.nn.pooling import Features
from alray.nn.shape import Shape


def bridge(input: Shape, *, label_dim: int, activation: str, pool: int | None, hidden: int | None) -> nn.Sequential:
    """b: `[N, *input] -> [N, label_dim]` (thesis: linear 1000, sigmoid, linear 700, sigmoid on flattened maps)."""
    features = Features(input, pool)
    layers: list[nn.Module] = [features]
    width = features.width
    if hidden is not None:
        layers.append(with_activation(nn.Linear(width, hidden), activation))
        width = hidden
    layers.append(with_activation(nn.Linear(width, label_dim), activation))
    return nn.Sequential(*layers)


def label_encoder(width: int, *, label_dim: int, activation: str) -> nn.Sequential:
    """g: `[N, width] -> [N, label_dim]`; width is the number of classes for component 1, label_dim afterwards."""
    return with_activation(nn.Linear(width, label_dim), activation)


def label_decoder(width: int, *, label_dim: int, activation: str) -> nn.Sequential:
    """h: `[N, label_dim] -> [N, width]`, the way back of g."""
    return with_activation(nn.Linear(label_dim, width), activation)


def classifier(input: Shape, *, classes: int, pool: int | None, hidden: int | None, activation: str) -> nn.Sequential:
    """Head of the backpropagation twin: `[N, *input] -> [N, classes]`, scores before softmax."""
    features = Features(input, pool)
    layers: list[nn.Module] = [features]
    width = features.width
    if hidden is not None:
        layers.append(with_activation(nn.Linear(width, hidden), activation))
        width = hidden
    layers.append(nn.Linear(width, classes))
    return nn.Sequential(*layers)
