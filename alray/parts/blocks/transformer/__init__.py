"""`block: transformer`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from pydantic import model_validator

from alray.config.sections.blocks import BlockSection, Dropout, NumLayers, sees_later_ones
from alray.config.sections.kind import Finding
from alray.config.sections.paths import Path
from alray.config.sections.section import PositiveInt, Width, refusal
from alray.core.counting import counted

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec


class Transformer(BlockSection):
    """A pre-norm Transformer encoder layer: self-attention and a feed-forward network, each with a residual path.

    With `causal` it is a number of layers of a language model, in which each position sees itself and those before it.
    As the first component it also has the vectors of the tokens.
    """

    implementation = "block:build"

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
    keys are turned by their positions, in every component. `none`: the causal mask alone tells them apart. Default:
    learned."""
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

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        # Where `dim` is left out, building the network tells.
        if self.dim is not None and self.dim % self.heads != 0:
            message = f"{counted(self.heads, 'head')} cannot share a width of {self.dim} evenly"
            yield (*at, "heads"), message, "choose a divisor of `dim`"
        if not self.causal and spec.task.label == "tokens":
            yield (*at, "causal"), sees_later_ones(spec), "add causal: true"


_CAUSAL = ("layers", "norm", "norm_at", "positions", "activation", "bias")
"""Keys of a Transformer that only a causal one has."""
