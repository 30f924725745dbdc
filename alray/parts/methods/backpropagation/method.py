"""Backpropagation of the loss of the task through all components."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from alray.config.sections.head import HeadOrAuto
from alray.core.errors import SpecError
from alray.models.backpropagation import BackpropagationComponent
from alray.models.encoder import Encoder, EncoderFacts
from alray.models.method import MakePart, Method, NetworkFacts
from alray.models.readout import Features, Readout, head_of
from alray.models.shape import Shape
from alray.models.token_embedding import TokenEmbedding


class BackpropagationMethod(Method):
    """The fields are the keys of the section.

    The only route is the whole network.
    """

    local_losses = False

    def __init__(
        self,
        task: NetworkFacts,
        *,
        head: HeadOrAuto,
        label_smoothing: float,
        tied: bool = False,
    ) -> None:
        super().__init__(task)
        self.head = head
        self.tied = tied
        self.label_smoothing = label_smoothing

    def component(self, index: int, f: Encoder, facts: EncoderFacts, make: MakePart) -> BackpropagationComponent:
        head = None
        if self._is_last(index):
            classes, of_model = self.task.classes, self.task.classifier
            if self.tied:
                head = make("head", lambda: tied_head(f.body, facts.output))
            elif self.head == "auto" and of_model is not None:
                head = make("head", lambda: of_model(facts.output, classes))
            else:
                head = make("head", lambda: head_of(self.head, facts.output, classes=classes, pooling=facts.pooling))
        return BackpropagationComponent(
            index,
            f=f,
            head=head,
            optimizer=self.task.optimizer,
            learning=self.task.learning,
            label_smoothing=self.label_smoothing,
        )

    def labels_out(self, index: int) -> dict[str, Shape]:
        """The labels as they are, up to the last component, which has the loss."""
        return {} if self._is_last(index) else self.given_labels


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
