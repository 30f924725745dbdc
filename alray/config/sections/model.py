"""`model`: the network as a chain of components."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    create_model,
    model_validator,
)

from alray.config.sections.blocks import Block, BlockSection, OwnBlock
from alray.config.sections.choice import ByShape
from alray.config.sections.own_code import OWN, PREFIX, FreeValue, GivenObject, OwnClass, own_reference
from alray.config.sections.section import Input, Section, describe, located, refusal

TRANSFORMERS = "transformers:"
"""How a name of a model of Hugging Face's library begins."""


def _model_name(text: str, info: ValidationInfo) -> str:
    kind, _, name = text.partition(":")
    if text.startswith(OWN):
        return own_reference(text)
    if text.startswith(TRANSFORMERS) and name.startswith((".", "/", "~")):
        return f"{TRANSFORMERS}{located(name, info)}"
    on_hub = kind == "transformers" and re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", name) is not None
    known = kind in ("torchvision", "timm", "transformers") and re.fullmatch(r"[A-Za-z0-9_.-]+", name) is not None
    if not (known or on_hub):
        raise refusal(
            f"{describe(text)} does not name a model",
            f"write torchvision:resnet18, timm:NAME, {TRANSFORMERS}NAME or {TRANSFORMERS}./FOLDER, or "
            f"{PREFIX}my_models.Net for your class",
        )
    return text


@dataclass(frozen=True)
class OfTransformers:
    """Marks the name of a model that may be one of transformers in a folder: `transformers:./my_gpt2`."""

    def marks(self, value: Any) -> bool:
        """Whether a value of the field is such a folder, given by a relative path."""
        return str(value).startswith(f"{TRANSFORMERS}.")


ModelName = Annotated[str, AfterValidator(_model_name), OwnClass(), GivenObject(), OfTransformers()]
"""A model of torchvision, timm or transformers by name, one of transformers in a folder, a class of the user, or an
object of a Python program."""

_NAMED = r"(?:\w+_Weights\.)?([A-Z][A-Z0-9_]*)"
_WEIGHTS = Input("file", not_matching=_NAMED)
"""Weights are a file, or torchvision's and timm's of a name."""


def _weights(value: Any, info: ValidationInfo) -> str:
    named = re.fullmatch(_NAMED, value) if isinstance(value, str) else None
    return str(located(value, info)) if named is None else named[1]


# `from` and `with` are words of Python: a class body cannot have attributes of these names.
_KEYWORDS: dict[str, Any] = {
    "from": (
        ModelName | None,
        Field(
            default=None,
            description="A whole model in place of a list of components: `torchvision:resnet18`, `timm:NAME`, "
            "`python:my_models.Net`, or of transformers a class (`transformers:GPT2LMHeadModel`, with its config in "
            "`with`), a folder (`transformers:./my_gpt2`) or a name on the hub (`transformers:gpt2`), whose weights "
            "are the initial ones. It is cut into components where a single tensor is needed later, one of "
            "transformers between its layers. Its classifier is the head of backpropagation. Other methods use what "
            "comes before it. null: none.",
        ),
    ),
    "with": (
        dict[str, FreeValue],
        Field(
            default_factory=dict,
            description="Arguments of that model's constructor, or of its config in transformers. Default: none.",
        ),
    ),
}
OtherModelSection = create_model("OtherModelSection", __base__=Section, **_KEYWORDS)


class Model(OtherModelSection):  # type: ignore[misc, valid-type]
    """The network as a chain of components."""

    components: Annotated[
        Annotated[tuple[Block, ...], Field(strict=False, min_length=1), Tag("list")]
        | Annotated[
            Annotated[Annotated[int, Field(ge=1, le=1000)], Tag("number")] | Annotated[Literal["auto"], Tag("name")],
            Discriminator(ByShape(int, "number", "name")),
            Tag("of a model"),
        ],
        Discriminator(ByShape((list, tuple), "list", "of a model")),
    ] = "auto"
    """Encoders f of the components, in the order of the data flow. An entry is one component, or `repeat` of them. Of a
    imported model (`from`): their number, which share its work evenly; or `auto`, one for each natural unit such as a
    residual block or a layer of a Transformer."""
    cut: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = None
    """Layers of that model after which it is cut, in place of a number of components: paths of modules, such as
    [layer1, layer2.0], or of functions in them, such as layer1.0.add and relu_1, the second one. null: by
    `components`."""

    untie: bool = False
    """Whether each of several names of one parameter (tied weights) gets a copy of its own, trained by itself. Default:
    false, and a cut between them is refused."""

    weights: Annotated[str, BeforeValidator(_weights), _WEIGHTS] | None = None
    """Initial weights of that whole model: a file with the names of that model, safetensors or a state dict that
    `torch.save` wrote; or weights that torchvision has under a name, such as DEFAULT or IMAGENET1K_V1, and timm as
    DEFAULT. The last layer may be for another number of classes; then it is drawn by the seed. null: all are drawn by
    the seed."""
    freeze: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Modules and parameters of that model that are not trained, by their paths, such as [conv1, bn1, layer1]. Frozen
    modules compute as in evaluation: their batch normalisation keeps its statistics, and they drop nothing. Default:
    none."""

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Model:
        listed_blocks = isinstance(self.components, tuple)
        if self.source is None and not listed_blocks:
            raise refusal(
                "a model needs `components` as a list, or `from`",
                "write, for example, components: [{block: mlp, widths: [64]}], or from: torchvision:resnet18",
            )
        of_imported = (self.cut, self.weights, self.arguments, self.freeze, self.untie)
        if self.source is None and any(of_imported):
            raise refusal(
                "`cut`, `weights`, `freeze`, `untie` and `with` belong to an imported model (`from`)",
                "remove them, or give `from`",
            )
        if self.source is not None and listed_blocks:
            raise refusal("an imported model has no list of blocks", "give the number of components, auto, or `cut`")
        if self.cut is not None and self.components != "auto":
            raise refusal(
                "a model is cut by `components` or by `cut`, not by both",
                "remove one of them, or set components to auto",
            )
        return self

    @property
    def weights_file(self) -> Path | None:
        """The file of initial weights, if there is one."""
        return Path(self.weights) if self.weights is not None and _WEIGHTS.marks(self.weights) else None

    @property
    def source(self) -> str | None:
        """The key `from`."""
        found: str | None = getattr(self, "from")
        return found

    @property
    def arguments(self) -> dict[str, Any]:
        """The key `with`."""
        found: dict[str, Any] = getattr(self, "with")
        return found

    @property
    def blocks(self) -> tuple[BlockSection, ...]:
        """The entries of the list of components; none for an imported model."""
        return self.components if isinstance(self.components, tuple) else ()

    @property
    def number(self) -> int | Literal["auto"]:
        """The key `components` of an imported model."""
        assert not isinstance(self.components, tuple)
        return self.components

    @property
    def is_own(self) -> bool:
        """Whether a part of the network is a class of the user."""
        own_model = self.source is not None and self.source.startswith(OWN)
        return own_model or any(isinstance(entry, OwnBlock) for entry in self.blocks)

    def expanded(self) -> list[BlockSection]:
        """Return one entry for each component: an entry with `repeat` n becomes n entries with `repeat` 1."""
        return [entry.model_copy(update={"repeat": 1}) for entry in self.blocks for _ in range(entry.repeat)]

    @property
    def num_components(self) -> int | None:
        """The number of components, including repeats; None where only the model tells."""
        if self.cut is not None:
            return len(self.cut) + 1
        if self.components == "auto":
            return None
        return self.components if isinstance(self.components, int) else sum(entry.repeat for entry in self.blocks)
