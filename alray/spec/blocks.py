"""`model`: the network as a chain of components. There is one class for each built-in block."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from alray.spec.choice import OPEN_TAG, Choice
from alray.spec.own_code import OwnCode, Reference
from alray.spec.section import Counts, InputFile, PositiveInt, Section, Width

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
    """A pre-norm Transformer encoder layer: self-attention and a feed-forward network, each with a residual path."""

    block: Literal["transformer"]
    """`transformer`."""
    dim: Width | None = None
    """Width of the input and the output. It is only used as a check. null: not checked."""
    heads: PositiveInt
    """Number of attention heads. It must divide the width."""
    feedforward: Width
    """Width of the feed-forward network's hidden layer."""
    dropout: Dropout = 0.0
    """Share in 0..1 of values that are set to zero in the attention weights, the hidden layer and both outputs.
    Default: 0."""


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

    block: Reference
    """The class, as `python:package.module.Class`."""


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
    Discriminator(Choice("block")),
]


class Model(Section):
    """The network as a chain of components."""

    components: Annotated[tuple[Block, ...], Field(strict=False, min_length=1)]
    """Encoders f of the components, in the order of the data flow. An entry is one component, or `repeat` of them."""

    def expanded(self) -> list[Block]:
        """Return one entry for each component: an entry with `repeat` n becomes n entries with `repeat` 1."""
        return [entry.model_copy(update={"repeat": 1}) for entry in self.components for _ in range(entry.repeat)]

    @property
    def num_components(self) -> int:
        """The number of components, including repeats."""
        return sum(entry.repeat for entry in self.components)
