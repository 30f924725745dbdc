"""`method`: how the network is trained."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from alray.spec.choice import ByShape, Choice
from alray.spec.section import PositiveInt, Section, Width, describe, refusal

Activation = Literal["tanh", "sigmoid", "none"]


class Bridge(Section):
    """The bridge b of a component: from its encoder's output to the width of the label chain."""

    pool: PositiveInt | None = 4
    """Images are averaged to at most this height and width first, over exact windows. null: no pooling."""
    hidden: Width | None = None
    """Width of a hidden layer, with the activation of `label_activation`. null: no hidden layer."""


class AssociatedLearning(Section):
    """Associated Learning: every component has its own local losses, nothing travels backwards."""

    kind: Literal["associated_learning"] = "associated_learning"
    """`associated_learning`."""
    label_dim: Width = 128
    """Width of the label chain t_l."""
    label_activation: Activation = "tanh"
    """After the label encoders g and the bridges b."""
    decoder_activation: Activation = "none"
    """After the label decoders h of every component but the first."""
    first_decoder_activation: Activation = "none"
    """After the label decoder h of the first component, whose output are the classes' scores."""
    bridge: Bridge = Bridge()
    """The bridges b."""
    first_label_loss: Literal["cross_entropy", "mse"] = "cross_entropy"
    """Autoencoder loss of the first component; that of the others is the mean squared error."""


class Head(Section):
    """What backpropagation puts behind the last encoder."""

    pool: PositiveInt | None = 4
    """Images are averaged to at most this height and width first, over exact windows. null: no pooling."""
    hidden: Width | None = None
    """Width of a hidden layer. null: no hidden layer."""
    activation: Literal["sigmoid", "relu", "tanh"] = "relu"
    """After the hidden layer."""


def _head(value: Any) -> Any:
    if isinstance(value, dict | Head) or value == "auto":
        return value
    raise refusal(
        f"expected `auto` or a section, got {describe(value)}",
        "a section is such as {pool: null, hidden: 2500}",
    )


class Backpropagation(Section):
    """Backpropagation of one cross-entropy loss through all components."""

    kind: Literal["backpropagation"]
    """`backpropagation`."""
    head: Annotated[
        Annotated[Head, Tag("section")] | Annotated[Literal["auto"], Tag("name")],
        Discriminator(ByShape((dict, Head), "section", "name")),
        BeforeValidator(_head),
    ] = "auto"
    """What follows the last encoder. `auto`: average to at most 4 x 4, flatten, one linear layer."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the target spread evenly over all classes."""


Method = Annotated[
    Annotated[AssociatedLearning, Tag("associated_learning")] | Annotated[Backpropagation, Tag("backpropagation")],
    Discriminator(Choice("kind", default="associated_learning")),
]
MethodKind = Literal["associated_learning", "backpropagation"]
