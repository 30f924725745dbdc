"""`optimizer`: how weights are updated. Each component has its own optimizer; all are of the same kind."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from alray.config.sections.choice import Choice
from alray.config.sections.section import NonNegativeFloat, PositiveFloat, PositiveInt, Section

Decay = Annotated[float, Field(ge=0, lt=1)]


class OptimizerSection(Section):
    """The keys of every optimizer."""

    kind: str
    """Name of the optimizer."""
    lr: PositiveFloat
    """Learning rate."""
    label_lr: PositiveFloat | None = None
    """Learning rate of the label encoders g and decoders h. null: the value of `lr`."""
    weight_decay: NonNegativeFloat = 0.0
    """Weight decay. Default: 0."""
    clip_norm: PositiveFloat | None = None
    """Largest norm of the gradients of one component; larger gradients are scaled down to it. In Associated Learning
    the gradients of f and b are clipped together, and those of g and h together. null: no limit."""
    accumulate: PositiveInt = 1
    """Number of mini-batches whose gradients are averaged into one update. They share one learning rate: that of the
    same update in a run with mini-batches so many times as large. Without batch normalisation and contrastive losses,
    the update equals that of one mini-batch of all these samples. If a run ends between two updates, the mini-batches
    since the last one make none; the run says so. Its checkpoint contains their gradients, and a resume that makes the
    run longer continues with them. A run shorter than an update is refused. Replicas average gradients once an update.
    Default: 1."""
    look_ahead: Decay = 0.0
    """Corrects gradients that are an update late, as with the schedule `2bw`: they are computed ahead of the weights,
    by this factor times the last change of these, which an update makes again; rates are multiplied by 1 minus the
    factor (Ajanthan et al. 2025, arXiv 2505.01099). It is a momentum: with an optimizer that has one of its own there
    are two. 0: no correction. Default: 0."""
    rate_factors: dict[str, PositiveFloat] = Field(default_factory=dict)
    """Factors by which the rates of parts are multiplied, by the name of the part, such as {head: 10}. Parts are `f`
    (the encoder), `b`, `g` and `h` in Associated Learning, `p` (the projection) and `head` in the other methods.
    Default: none."""


class DecayingSection(OptimizerSection):
    """The keys of optimizers whose weight decay may leave parameters out."""

    decay: Literal["all", "weights"] = "all"
    """Parameters that weight decay applies to. `all`: every parameter. `weights`: parameters of two dimensions or
    more, so neither biases nor norms. Default: all."""


class Sgd(DecayingSection):
    """Stochastic gradient descent."""

    kind: Literal["sgd"]
    """`sgd`."""
    momentum: Decay = 0.0
    """Momentum. Default: 0."""
    nesterov: bool = False
    """Whether to use Nesterov momentum. Default: false."""
    fused: bool = False
    """Whether one kernel updates all parameters of a component. It rounds differently, so it changes the bits. Default:
    false."""


class Adam(DecayingSection):
    """Adam. Weight decay is added to the gradient."""

    kind: Literal["adam"] = "adam"
    """`adam`."""
    lr: PositiveFloat = 1e-3
    """Learning rate. Default: 0.001."""
    betas: Annotated[tuple[Decay, Decay], Field(strict=False)] = (0.9, 0.999)
    """Decay rates of the running means of the gradient and its square. Default: [0.9, 0.999]."""
    eps: PositiveFloat = 1e-8
    """Constant that is added to the denominator. Default: 1e-8."""
    fused: bool = False
    """Whether one kernel updates all parameters of a component. It rounds differently, so it changes the bits. Default:
    false."""


class AdamW(DecayingSection):
    """Adam with decoupled weight decay."""

    kind: Literal["adamw"]
    """`adamw`."""
    lr: PositiveFloat = 1e-3
    """Learning rate. Default: 0.001."""
    weight_decay: NonNegativeFloat = 0.01
    """Weight decay, applied directly to the weights. Default: 0.01."""
    betas: Annotated[tuple[Decay, Decay], Field(strict=False)] = (0.9, 0.999)
    """Decay rates of the running means of the gradient and its square. Default: [0.9, 0.999]."""
    eps: PositiveFloat = 1e-8
    """Constant that is added to the denominator. Default: 1e-8."""
    fused: bool = False
    """Whether one kernel updates all parameters of a component. It rounds differently, so it changes the bits. Default:
    false."""


class Lars(OptimizerSection):
    """LARS: layer-wise adaptive rates for large batches, with momentum (You et al. 2017, arXiv 1708.03888).

    The rate of a weight tensor is `lr * trust_coefficient * |w| / (|g| + weight_decay * |w| + eps)`. Parameters of one
    dimension (biases, norms) have the rate `lr` and no weight decay.
    """

    decay: ClassVar = "all"  # it leaves biases and norms out by itself

    kind: Literal["lars"]
    """`lars`."""
    momentum: Decay = 0.9
    """Momentum. Default: 0.9."""
    trust_coefficient: PositiveFloat = 1e-3
    """Largest change of a weight tensor in one update relative to its norm, for a rate of 1. Default: 0.001."""
    eps: PositiveFloat = 1e-8
    """Constant that is added to the denominator. Default: 1e-8."""


class Lamb(OptimizerSection):
    """LAMB: layer-wise adaptive rates for large batches, on Adam (You et al. 2020, arXiv 1904.00962).

    Adam's update with decoupled weight decay is scaled to the norm of its weight tensor. Parameters of one dimension
    (biases, norms) are updated as by Adam, without weight decay.
    """

    decay: ClassVar = "all"  # it leaves biases and norms out by itself

    kind: Literal["lamb"]
    """`lamb`."""
    lr: PositiveFloat = 1e-3
    """Learning rate. Default: 0.001."""
    betas: Annotated[tuple[Decay, Decay], Field(strict=False)] = (0.9, 0.999)
    """Decay rates of the running means of the gradient and its square. Default: [0.9, 0.999]."""
    eps: PositiveFloat = 1e-6
    """Constant that is added to the denominator. Default: 1e-6."""


class RmsProp(DecayingSection):
    """RMSprop. Weight decay is added to the gradient."""

    kind: Literal["rmsprop"]
    """`rmsprop`."""
    lr: PositiveFloat = 1e-2
    """Learning rate. Default: 0.01."""
    alpha: Decay = 0.99
    """Decay rate of the running mean of the squared gradient. Default: 0.99."""
    momentum: Decay = 0.0
    """Momentum. Default: 0."""
    centered: bool = False
    """Whether the gradient is divided by its standard deviation instead of its root mean square. Default: false."""
    eps: PositiveFloat = 1e-8
    """Constant that is added to the denominator. Default: 1e-8."""


class Muon(DecayingSection):
    """Muon: momentum whose matrices are orthogonalised (Jordan et al. 2024), as torch has it.

    It updates weights of two dimensions. AdamW updates all other parameters, among them biases, norms, convolutions,
    embeddings and classifiers (the part `head`). The plan says how many parameters each of the two updates.
    """

    kind: Literal["muon"]
    """`muon`."""
    lr: PositiveFloat = 1e-3
    """Learning rate. Default: 0.001."""
    other_lr: PositiveFloat | None = None
    """Learning rate of the parameters that AdamW updates. It follows `lr_schedule` and `label_lr` in the same
    proportion as `lr` does. null: the value of `lr`."""
    weight_decay: NonNegativeFloat = 0.1
    """Weight decay, applied directly to the weights. Default: 0.1."""
    momentum: Decay = 0.95
    """Momentum. Default: 0.95."""
    nesterov: bool = True
    """Whether to use Nesterov momentum. Default: true."""
    iterations: Annotated[int, Field(ge=1, le=99)] = 5
    """Number of Newton-Schulz iterations that orthogonalise a matrix. Default: 5."""
    step_size: Literal["adamw", "original"] = "adamw"
    """Factor of the rate of a matrix of r rows and c columns. `adamw`: 0.2 sqrt(max(r, c)), with which rates that suit
    AdamW suit Muon (Liu et al. 2025, arXiv 2502.16982). `original`: sqrt(max(1, r / c)). Default: adamw."""
    betas: Annotated[tuple[Decay, Decay], Field(strict=False)] = (0.9, 0.999)
    """Decay rates of the running means of AdamW. Default: [0.9, 0.999]."""
    eps: PositiveFloat = 1e-8
    """Constant that AdamW adds to the denominator. Default: 1e-8."""


Optimizer = Annotated[
    Annotated[Sgd, Tag("sgd")]
    | Annotated[Adam, Tag("adam")]
    | Annotated[AdamW, Tag("adamw")]
    | Annotated[RmsProp, Tag("rmsprop")]
    | Annotated[Lars, Tag("lars")]
    | Annotated[Lamb, Tag("lamb")]
    | Annotated[Muon, Tag("muon")],
    Discriminator(Choice("kind", default="adam")),
]
