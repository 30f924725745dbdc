"""`optimizer`: each component has its own, all of one kind."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from alray.spec.choice import Choice
from alray.spec.section import NonNegativeFloat, PositiveFloat, PositiveInt, Section

Decay = Annotated[float, Field(ge=0, lt=1)]


class OptimizerSection(Section):
    """What every optimizer has."""

    kind: str
    """Which optimizer."""
    lr: PositiveFloat
    """Learning rate."""
    label_lr: PositiveFloat | None = None
    """Learning rate of the label encoders g and decoders h. null: as `lr`."""
    weight_decay: NonNegativeFloat = 0.0
    """Weight decay."""
    clip_norm: PositiveFloat | None = None
    """Largest norm of one component's gradients; longer ones are scaled down to it. In Associated Learning the
    gradients of f with b, and those of g with h, are clipped apart. null: no limit."""
    accumulate: PositiveInt = 1
    """Mini-batches whose gradients are averaged into one update: without batch normalisation and contrastive losses it
    is the update of one mini-batch of so many times the size. What is gathered when a run ends waits in its checkpoint
    for a resume."""


class Sgd(OptimizerSection):
    """Stochastic gradient descent."""

    kind: Literal["sgd"]
    """`sgd`."""
    momentum: Decay = 0.0
    """Momentum."""
    nesterov: bool = False
    """Nesterov's form of momentum."""


class Adam(OptimizerSection):
    """Adam; weight decay is added to the gradient."""

    kind: Literal["adam"] = "adam"
    """`adam`."""
    lr: PositiveFloat = 1e-3
    """Learning rate."""
    betas: Annotated[tuple[Decay, Decay], Field(strict=False)] = (0.9, 0.999)
    """Decay rates of the two running means."""
    eps: PositiveFloat = 1e-8
    """Added to the denominator."""


class AdamW(OptimizerSection):
    """Adam with decoupled weight decay."""

    kind: Literal["adamw"]
    """`adamw`."""
    lr: PositiveFloat = 1e-3
    """Learning rate."""
    weight_decay: NonNegativeFloat = 0.01
    """Weight decay, applied to the weights themselves."""
    betas: Annotated[tuple[Decay, Decay], Field(strict=False)] = (0.9, 0.999)
    """Decay rates of the two running means."""
    eps: PositiveFloat = 1e-8
    """Added to the denominator."""


class Lars(OptimizerSection):
    """Layer-wise adaptive rates for large batches (You et al. 2017, arXiv 1708.03888), with momentum.

    Each weight tensor moves at `lr * trust_coefficient * |w| / (|g| + weight_decay * |w| + eps)`. Parameters of one
    dimension (biases, norms) move at `lr` itself, without weight decay.
    """

    kind: Literal["lars"]
    """`lars`."""
    momentum: Decay = 0.9
    """Momentum."""
    trust_coefficient: PositiveFloat = 1e-3
    """How far a weight tensor may move in one update, relative to its own norm, at a rate of 1."""
    eps: PositiveFloat = 1e-8
    """Added to the denominator."""


Optimizer = Annotated[
    Annotated[Sgd, Tag("sgd")]
    | Annotated[Adam, Tag("adam")]
    | Annotated[AdamW, Tag("adamw")]
    | Annotated[Lars, Tag("lars")],
    Discriminator(Choice("kind", default="adam")),
]
