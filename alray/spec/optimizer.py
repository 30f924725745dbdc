"""`optimizer`: how weights are updated. Each component has its own optimizer; all are of the same kind."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from alray.spec.choice import Choice
from alray.spec.section import NonNegativeFloat, PositiveFloat, PositiveInt, Section

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
    the update equals that of one mini-batch of all these samples. If a run ends between two updates, its
    checkpoint contains the gradients so far, and a resume continues with them. Replicas average gradients once an
    update. Default: 1."""


class Sgd(OptimizerSection):
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


class Adam(OptimizerSection):
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


class AdamW(OptimizerSection):
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

    kind: Literal["lars"]
    """`lars`."""
    momentum: Decay = 0.9
    """Momentum. Default: 0.9."""
    trust_coefficient: PositiveFloat = 1e-3
    """Largest change of a weight tensor in one update relative to its norm, for a rate of 1. Default: 0.001."""
    eps: PositiveFloat = 1e-8
    """Constant that is added to the denominator. Default: 1e-8."""


Optimizer = Annotated[
    Annotated[Sgd, Tag("sgd")]
    | Annotated[Adam, Tag("adam")]
    | Annotated[AdamW, Tag("adamw")]
    | Annotated[Lars, Tag("lars")],
    Discriminator(Choice("kind", default="adam")),
]
