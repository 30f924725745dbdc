"""Bridges, label encoders, label decoders and the classifier head of backpropagation."""

from __future__ import annotations

import torch
from torch import nn

from alray.nn.activations import with_activation
from alray.nn.pooling import Features, Pooling
from alray.nn.shape import Shape


class Readout(nn.Sequential):
    """A vector per sample, then layers: `[N, *input] -> [N, width]`."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """mask: [N, T] where s is a sequence [N, T, D] whose rows differ in length."""
        features, *layers = self
        s = features(s, mask)
        for layer in layers:
            s = layer(s)
        return s


def bridge(
    input: Shape, *, label_dim: int, activation: str, pool: int | None, hidden: int | None, pooling: Pooling = "mean"
) -> Readout:
    """b: `[N, *input] -> [N, label_dim]`.

    Thesis, images: linear 1000, sigmoid, linear 700, sigmoid on flattened maps; text: linear 128, tanh on the masked
    mean, or on the final states of an LSTM.
    """
    features = Features(input, pool, pooling)
    layers: list[nn.Module] = [features]
    width = features.width
    if hidden is not None:
        layers.append(with_activation(nn.Linear(width, hidden), activation))
        width = hidden
    layers.append(with_activation(nn.Linear(width, label_dim), activation))
    return Readout(*layers)


def label_encoder(width: int, *, label_dim: int, activation: str) -> nn.Sequential:
    """g: `[N, width] -> [N, label_dim]`; width is the number of classes for component 1, label_dim afterwards."""
    return with_activation(nn.Linear(width, label_dim), activation)


def label_decoder(width: int, *, label_dim: int, activation: str) -> nn.Sequential:
    """h: `[N, label_dim] -> [N, width]`, the way back of g."""
    return with_activation(nn.Linear(label_dim, width), activation)


def classifier(
    input: Shape, *, classes: int, pool: int | None, hidden: int | None, activation: str, pooling: Pooling = "mean"
) -> Readout:
    """Head of the backpropagation twin: `[N, *input] -> [N, classes]`, scores before softmax."""
    features = Features(input, pool, pooling)
    layers: list[nn.Module] = [features]
    width = features.width
    if hidden is not None:
        layers.append(with_activation(nn.Linear(width, hidden), activation))
        width = hidden
    layers.append(nn.Linear(width, classes))
    return Readout(*layers)
