"""`model`: the network as a chain of components. There is one class for each built-in block."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from alray.spec.choice import OPEN_TAG, Choice
from alray.spec.own_code import OwnCode, Reference
from alray.spec.section import Counts, PositiveInt, Section, SpecPath, Width

LayerActivation = Literal["relu", "tanh", "sigmoid", "none"]
NumLayers = Annotated[int, Field(ge=1, le=1000)]
Dropout = Annotated[float, Field(ge=0, lt=1)]


class BlockSection(Section):
    """What every entry has."""

    normalises_batches: ClassVar[bool] = False
    """Whether the block has batch normalisation."""

    block: str
    """Which block."""
    repeat: Annotated[int, Field(ge=1, le=1000)] = 1
    """How many components alike this entry stands for."""

    @property
    def fields(self) -> dict[str, Any]:
        """What the block is built with, by name: every key but `block` and `repeat`."""
        return {key: getattr(self, key) for key in type(self).model_fields if key not in ("block", "repeat")}

    @property
    def fields_of_trained(self) -> dict[str, Any]:
        """The same where its weights are loaded: without the files that initial weights are read from."""
        return self.fields


class Vgg(BlockSection):
    """3x3 convolutions (padding 1, no bias), each with batch normalisation and ReLU, and perhaps a pool."""

    normalises_batches = True

    block: Literal["vgg"]
    """`vgg`."""
    channels: Counts
    """Output channels of each convolution, in order."""
    pool: bool = False
    """Whether a 2x2 max pool ends the block, which halves height and width."""


class Stem(BlockSection):
    """The first component of a ResNet: a 3x3 convolution (padding 1, no bias), batch normalisation, ReLU."""

    normalises_batches = True

    block: Literal["stem"]
    """`stem`."""
    channels: Width
    """Output channels."""


class Residual(BlockSection):
    """Basic blocks of a ResNet: two 3x3 convolutions with batch normalisation and ReLU, and a way around them."""

    normalises_batches = True

    block: Literal["residual"]
    """`residual`."""
    channels: Width
    """Output channels of every convolution."""
    layers: NumLayers
    """Number of basic blocks, of two convolutions each."""
    stride: Annotated[int, Field(ge=1, le=1000)] = 1
    """Stride of the first convolution: height and width are divided by it, rounded up."""
    shortcut: Literal["3x3", "1x1"] = "3x3"
    """Convolution on the way around a basic block that changes the shape; where it stays there is none."""


class Embedding(BlockSection):
    """A learned vector for each word of the vocabulary; the first component on text."""

    block: Literal["embedding"]
    """`embedding`."""
    dim: Width
    """Width of the vectors."""
    vectors: SpecPath | None = None
    """File of word vectors to begin with, `word v1 ... v_dim` a line (GloVe, word2vec and fastText as text). Words it
    does not have, and all words where null, begin with small random vectors of mean zero."""

    @property
    def fields_of_trained(self) -> dict[str, Any]:
        return {**self.fields, "vectors": None}


class Lstm(BlockSection):
    """A recurrent layer over sequences; padding is not read. The bridge reads its final states."""

    block: Literal["lstm"]
    """`lstm`."""
    hidden: Width
    """Width of the state of one direction."""
    bidirectional: bool = True
    """Whether a second direction reads each sequence from its end; the output is then twice `hidden` wide."""
    layers: NumLayers = 1
    """Number of layers, within this one component."""
    hand_on_state: bool = False
    """Whether its final state is handed on, and one that is handed to it is what it begins with. Each LSTM in such a
    row says so, with the same `hidden`, `layers` and `bidirectional`."""


class Transformer(BlockSection):
    """A pre-norm encoder layer: self-attention and a feed-forward network, each with a way around it."""

    block: Literal["transformer"]
    """`transformer`."""
    dim: Width | None = None
    """Width of its input, which it keeps: a check, since only one value is right. null: not checked."""
    heads: PositiveInt
    """Number of attention heads; a divisor of the width."""
    feedforward: Width
    """Width of the feed-forward network's hidden layer."""
    dropout: Dropout = 0.0
    """Share of values set to zero: of attention weights, of the hidden layer and of what is added on the way."""


class LinearLayer(BlockSection):
    """One linear layer. Images are flattened; of a sequence each place goes through it alone."""

    block: Literal["linear"]
    """`linear`."""
    width: Width
    """Output width."""
    activation: LayerActivation = "relu"
    """After the layer."""


class Mlp(BlockSection):
    """Linear layers, one after another. Images are flattened; of a sequence each place goes through them alone."""

    block: Literal["mlp"]
    """`mlp`."""
    widths: Annotated[tuple[Width, ...], Field(strict=False, min_length=1)]
    """Output width of each layer, in order."""
    activation: LayerActivation = "relu"
    """After every layer."""
    dropout: Dropout = 0.0
    """Share of values set to zero after every activation."""


class OwnBlock(OwnCode, BlockSection):
    """A block of one's own; the keys that are not listed here go to its constructor."""

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
    """The network, as a chain of encoders."""

    components: Annotated[tuple[Block, ...], Field(strict=False, min_length=1)]
    """The encoders f in the order data flows; one entry is one component, or `repeat` of them."""

    def expanded(self) -> list[Block]:
        """One entry per component: what `repeat` stands for written out, each with `repeat` 1."""
        return [entry.model_copy(update={"repeat": 1}) for entry in self.components for _ in range(entry.repeat)]

    @property
    def num_components(self) -> int:
        """Number of components, `repeat` counted."""
        return sum(entry.repeat for entry in self.components)
