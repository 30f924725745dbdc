"""The layers after an encoder that give scores, as several methods have them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from alray.config.sections.choice import ByShape
from alray.config.sections.section import PositiveInt, Section, Width, describe, refusal

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


def _head(value: Any) -> Any:
    if isinstance(value, dict | Head) or value == "auto":
        return value
    raise refusal(
        f"expected `auto` or a section, got {describe(value)}",
        "a section is such as {pool: null, hidden: 2500}",
    )


HeadOrAuto = Annotated[
    Annotated[Head, Tag("section")] | Annotated[Literal["auto"], Tag("name")],
    Discriminator(ByShape((dict, Head), "section", "name")),
    BeforeValidator(_head),
]
