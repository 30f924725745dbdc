"""A readout of tokens whose last layer is the matrix of their vectors."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from alray.core.errors import SpecError
from alray.models.readout import Features, Readout
from alray.models.shape import Shape
from alray.models.token_embedding import TokenEmbedding


class TiedLayer(nn.Module):
    """Scores of tokens by the vectors of an embedding (Press and Wolf 2017): `[N, T, D] -> [N, T, tokens]`.

    It has no separate matrix. The embedding is a part of the encoder, and must lie in the same component.
    """

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self._embedding = (embedding,)  # in a tuple, so that its weights have one name only

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        return functional.linear(s, self._embedding[0].weight)


def tied_head(encoder: nn.Module, input: Shape) -> Readout:
    """The classifier of GPT-2: a layer norm, and the vectors of the tokens as the last layer.

    Raises:
        SpecError: if the encoder has no vectors of tokens.
    """
    embedding = getattr(encoder, "embedding", None)
    if not isinstance(embedding, TokenEmbedding):
        raise SpecError(
            "the last component has no vectors of tokens, so its readout cannot be tied to them",
            key="method.tied",
            hint="put all layers into one component, by `layers` of a causal `transformer`, or leave `tied` out",
        )
    features = Features(input, None, "none")
    return Readout(features, nn.LayerNorm(features.width), TiedLayer(embedding.table))
