"""The layers after an encoder that give scores, as several methods have them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from alray.config.sections.choice import ByShape
from alray.config.sections.section import PositiveInt, Section, Width

LabelSmoothing = Annotated[float, Field(ge=0, lt=1)]


class Head(Section):
    """The classifier after the last encoder."""

    pool: PositiveInt | None = 4
    """Images are averaged to at most this height and width first, over exact windows. null: no pooling."""
    hidden: Width | None = None
    """Width of a hidden layer. null: no hidden layer."""
    activation: Literal["sigmoid", "relu", "tanh"] = "relu"
    """After the hidden layer."""
    sequence: Literal["auto", "last_word"] = "auto"
    """How a sequence becomes a vector. `auto`: the mean over its words, or the final state of an `lstm`, that of both
    directions added. `last_word`: the output at the last word; of a bidirectional `lstm` that is twice as wide.
    Default: auto."""


_BY_SHAPE = Discriminator(ByShape((dict, Head), "section", "name"))
_Section = Annotated[Head, Tag("section")]

HeadOrAuto = Annotated[_Section | Annotated[Literal["auto"], Tag("name")], _BY_SHAPE]
HeadOrModel = Annotated[_Section | Annotated[Literal["auto", "model"], Tag("name")], _BY_SHAPE]
"""`model`: the classifier of the model that `model.from` names."""
