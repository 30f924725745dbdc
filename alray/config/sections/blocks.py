"""`model`: the network as a chain of components. There is one class for each built-in block."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    create_model,
    model_validator,
)

from alray.config.sections.choice import OPEN_TAG, ByShape, Choice
from alray.config.sections.own_code import PREFIX, FreeValue, Name, OfPackage, OwnClass, OwnCode, own_reference
from alray.config.sections.packages import BLOCKS as GROUP
from alray.config.sections.section import (
    Counts,
    Input,
    InputFile,
    PositiveInt,
    Section,
    Width,
    describe,
    located,
    refusal,
)

LayerActivation = Literal["relu", "tanh", "sigmoid", "none"]
NumLayers = Annotated[int, Field(ge=1, le=1000)]
Dropout = Annotated[float, Field(ge=0, lt=1)]


class BlockSection(Section):
    """The keys of every block."""

    normalises_batches: ClassVar[bool] = False
    """Whether the block contains batch normalisation."""

    block: str
    """Name of the block."""
    repeat: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of equal components that this entry stands for. Default: 1."""

    @property
    def fields(self) -> dict[str, Any]:
        """The arguments with which the block is built, by name: all keys except `block` and `repeat`."""
        return {key: getattr(self, key) for key in type(self).model_fields if key not in ("block", "repeat")}

    @property
    def fields_of_trained(self) -> dict[str, Any]:
        """The same for a block whose weights are loaded: without files of initial weights."""
        return self.fields


class Vgg(BlockSection):
    """3x3 convolutions (padding 1, no bias), each with batch normalisation and ReLU, and an optional max pool."""

    normalises_batches = True

    block: Literal["vgg"]
    """`vgg`."""
    channels: Counts
    """Output channels of each convolution, in order."""
    pool: bool = False
    """Whether the block ends with a 2x2 max pool, which halves height and width. Default: false."""


class Stem(BlockSection):
    """The first component of a ResNet: a 3x3 convolution (padding 1, no bias), batch normalisation, ReLU."""

    normalises_batches = True

    block: Literal["stem"]
    """`stem`."""
    channels: Width
    """Output channels."""


class Residual(BlockSection):
    """Basic blocks of a ResNet: two 3x3 convolutions with batch normalisation and ReLU, and a shortcut around them."""

    normalises_batches = True

    block: Literal["residual"]
    """`residual`."""
    channels: Width
    """Output channels of every convolution."""
    layers: NumLayers
    """Number of basic blocks. Each has two convolutions."""
    stride: Annotated[int, Field(ge=1, le=1000)] = 1
    """Stride of the first convolution. It divides height and width, rounded up. Default: 1."""
    shortcut: Literal["3x3", "1x1"] = "3x3"
    """Convolution in the shortcut of a basic block that changes the shape. Other basic blocks have no convolution
    there. Default: 3x3."""


class Embedding(BlockSection):
    """A learned vector for each word of the vocabulary. It is the first component for text."""

    block: Literal["embedding"]
    """`embedding`."""
    dim: Width
    """Width of the vectors."""
    vectors: InputFile | None = None
    """File of initial word vectors, with lines `word v1 ... v_dim` (the text format of GloVe, word2vec and fastText).
    Words that are not in the file start with small random vectors of mean zero. null: all words do."""

    @property
    def fields_of_trained(self) -> dict[str, Any]:
        return {**self.fields, "vectors": None}


class Lstm(BlockSection):
    """An LSTM over sequences. It skips padding. The bridge reads its final states."""

    block: Literal["lstm"]
    """`lstm`."""
    hidden: Width
    """Width of the state of one direction."""
    bidirectional: bool = True
    """Whether a second direction reads each sequence backwards. The output is then 2 * `hidden` wide. Default: true."""
    layers: NumLayers = 1
    """Number of layers in this component. Default: 1."""
    hand_on_state: bool = False
    """Whether the final state is passed to the next component, which starts with it. Set it for every LSTM of the
    sequence; they need the same `hidden`, `layers` and `bidirectional`. Default: false."""


class Transformer(BlockSection):
    """A pre-norm Transformer encoder layer: self-attention and a feed-forward network, each with a residual path.

    With `causal` it is a number of layers of a language model, in which each position sees itself and those before it.
    As the first component it also has the vectors of the tokens.
    """

    block: Literal["transformer"]
    """`transformer`."""
    dim: Width | None = None
    """Width of the input and the output. It is only used as a check, but where tokens come in it is the width of their
    vectors. null: not checked."""
    heads: PositiveInt
    """Number of attention heads. It must divide the width."""
    feedforward: Width
    """Width of the feed-forward network's hidden layer."""
    dropout: Dropout = 0.0
    """Share in 0..1 of values that are set to zero in the attention weights, the hidden layer and both outputs; of a
    causal block in the attention weights, both outputs and the vectors of tokens. Default: 0."""
    causal: bool = False
    """Whether each position sees itself and those before it alone. The keys below are for causal blocks. Default:
    false."""
    layers: NumLayers = 1
    """Number of layers in this component. Default: 1."""
    norm: Literal["layer", "rms"] = "layer"
    """Normalisation: `layer` or `rms` (RMSNorm). Default: layer."""
    norm_at: Literal["pre", "post"] = "pre"
    """`pre`: before attention and feed-forward network, in GPT-2's way. `post`: after their residual paths. Default:
    pre."""
    positions: Literal["learned", "rotary", "none"] = "learned"
    """`learned`: a vector of each position is added to that of the token, in the first component. `rotary`: queries and
    keys are turned by their positions, in every component. Default: learned."""
    activation: Literal["relu", "gelu", "swiglu"] = "gelu"
    """In the feed-forward network. `swiglu` has a third matrix. Default: gelu."""
    bias: bool = True
    """Whether linear layers have biases. Default: true."""

    @model_validator(mode="after")
    def _causal_keys(self) -> Transformer:
        further = [key for key in _CAUSAL if getattr(self, key) != type(self).model_fields[key].default]
        if further and not self.causal:
            raise refusal(f"`{further[0]}` is for causal blocks", f"leave out {further[0]}, or set causal to true")
        return self

    @property
    def fields(self) -> dict[str, Any]:
        left_out = ("block", "repeat") if self.causal else ("block", "repeat", "causal", *_CAUSAL)
        return {key: getattr(self, key) for key in type(self).model_fields if key not in left_out}


_CAUSAL = ("layers", "norm", "norm_at", "positions", "activation", "bias")
"""Keys of a Transformer that only a causal one has."""


class LinearLayer(BlockSection):
    """One linear layer. Images are flattened. In a sequence, it is applied to each position."""

    block: Literal["linear"]
    """`linear`."""
    width: Width
    """Output width."""
    activation: LayerActivation = "relu"
    """Activation after the layer. Default: relu."""


class Mlp(BlockSection):
    """Several linear layers. Images are flattened. In a sequence, they are applied to each position."""

    block: Literal["mlp"]
    """`mlp`."""
    widths: Annotated[tuple[Width, ...], Field(strict=False, min_length=1)]
    """Output width of each layer, in order."""
    activation: LayerActivation = "relu"
    """Activation after every layer. Default: relu."""
    dropout: Dropout = 0.0
    """Share in 0..1 of values that are set to zero after every activation. Default: 0."""


class OwnBlock(OwnCode, BlockSection):
    """A class of the user. Keys that are not listed here are passed to its constructor."""

    model_config = ConfigDict(extra="allow")

    block: Annotated[Name, OfPackage(GROUP)]
    """The class, as `python:package.module.Class`, or the name that an installed package gives it."""


Block = Annotated[
    Annotated[Vgg, Tag("vgg")]
    | Annotated[Stem, Tag("stem")]
    | Annotated[Residual, Tag("residual")]
    | Annotated[Embedding, Tag("embedding")]
    | Annotated[Lstm, Tag("lstm")]
    | Annotated[Transformer, Tag("transformer")]
    | Annotated[LinearLayer, Tag("linear")]
    | Annotated[Mlp, Tag("mlp")]
    | Annotated[OwnBlock, Tag(OPEN_TAG)],
    Discriminator(Choice("block", group=GROUP, own=lambda: BLOCKS)),
]

BLOCKS: dict[str, type[BlockSection]] = {
    get_args(member)[1].tag: get_args(member)[0] for member in get_args(get_args(Block)[0])
}
"""The sections of all blocks by `block`; `python` stands for those of one's own."""


def _model_name(text: str) -> str:
    kind, _, name = text.partition(":")
    if text.startswith(PREFIX):
        return own_reference(text)
    if kind not in ("torchvision", "timm") or re.fullmatch(r"[A-Za-z0-9_.-]+", name) is None:
        raise refusal(
            f"{describe(text)} does not name a model",
            f"write torchvision:resnet18, timm:NAME, or {PREFIX}my_models.Net for a class of your own",
        )
    return text


ModelName = Annotated[str, AfterValidator(_model_name), OwnClass()]
"""A model of torchvision or timm by name, or a class of the user."""

_WEIGHTS = Input("file", name=r"[A-Z][A-Z0-9_]*")
"""Weights are a file, or torchvision's and timm's of a name."""


def _weights(value: Any, info: ValidationInfo) -> str:
    named = re.fullmatch(r"(?:\w+_Weights\.)?([A-Z][A-Z0-9_]*)", value) if isinstance(value, str) else None
    return str(located(value, info)) if named is None else named[1]


# `from` and `with` are words of Python: a class body cannot have attributes of these names.
_KEYWORDS: dict[str, Any] = {
    "from": (
        ModelName | None,
        Field(
            default=None,
            description="A whole model in place of a list of components: `torchvision:resnet18`, `timm:NAME` or "
            "`python:my_models.Net`. It is cut into components where a single tensor is needed later. Its own "
            "classifier is the head of backpropagation. Other methods use what comes before it. null: none.",
        ),
    ),
    "with": (
        dict[str, FreeValue],
        Field(default_factory=dict, description="Arguments of that model's constructor. Default: none."),
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
    model `from` elsewhere: their number, which share its work evenly; or `auto`, one for each natural unit such as a
    residual block or a layer of a Transformer."""
    cut: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = None
    """Layers of that model after which it is cut, in place of a number of components: paths of modules or of single
    operations as in torchvision's `get_graph_node_names`, such as [layer1, layer2.0]. null: by `components`."""

    weights: Annotated[str, BeforeValidator(_weights), _WEIGHTS] | None = None
    """Initial weights of that whole model: a file with its own names, safetensors or a state dict that `torch.save`
    wrote; or weights that torchvision has under a name, such as DEFAULT or IMAGENET1K_V1, and timm as DEFAULT. The last
    layer may be for another number of classes; then it is drawn by the seed. null: all are drawn by the seed."""
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
        if self.source is None and (self.cut is not None or self.weights is not None or self.arguments or self.freeze):
            raise refusal(
                "`cut`, `weights`, `freeze` and `with` belong to a model `from` elsewhere",
                "remove them, or give `from`",
            )
        if self.source is not None and listed_blocks:
            raise refusal(
                "a model `from` elsewhere has no list of blocks", "give the number of components, auto, or `cut`"
            )
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
    def blocks(self) -> tuple[Block, ...]:
        """The entries of the list of components; none for a model from elsewhere."""
        return self.components if isinstance(self.components, tuple) else ()

    @property
    def number(self) -> int | Literal["auto"]:
        """The key `components` of a model from elsewhere."""
        assert not isinstance(self.components, tuple)
        return self.components

    @property
    def is_own(self) -> bool:
        """Whether a part of the network is a class of the user."""
        own_model = self.source is not None and self.source.startswith(PREFIX)
        return own_model or any(isinstance(entry, OwnBlock) for entry in self.blocks)

    def expanded(self) -> list[Block]:
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
