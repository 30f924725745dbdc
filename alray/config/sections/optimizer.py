"""`optimizer`: how weights are updated. Each component has its own optimizer; all are of the same kind."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from alray.config.sections.kind import Kind, PartSection
from alray.config.sections.own_code import FreeSection, Name, OfPackage, OwnCode
from alray.config.sections.section import NonNegativeFloat, PositiveFloat, PositiveInt

Decay = Annotated[float, Field(ge=0, lt=1)]


class OptimizerSection(PartSection):
    """The keys of every optimizer."""

    kind: str
    """Name of the optimizer."""
    lr: PositiveFloat
    """Learning rate."""
    weight_decay: NonNegativeFloat = 0.0
    """Weight decay. Default: 0."""
    clip_norm: PositiveFloat | None = None
    """Largest norm of gradients; larger ones are scaled down to it. With backpropagation it is the norm of all the
    network's gradients together, over stages and as the replicas average them, as torch's `clip_grad_norm_` has it; so
    the stages of a pipeline wait for each other before each update. With local losses it is the norm of the gradients
    of one component: in Associated Learning those of f and b together, and those of g and h together; a readout whose
    loss does not train the encoder is clipped by itself. null: no limit."""
    accumulate: PositiveInt = 1
    """Number of mini-batches whose gradients are averaged into one update. They share one learning rate: that of the
    same update in a run with mini-batches so many times as large. The update equals that of one mini-batch of all these
    samples, without batch normalisation, contrastive losses, `task.class_weights`, `data.mix` and `peer_normalisation`
    of `forward_forward`: these depend on the other samples of a mini-batch. A smaller last mini-batch
    (`data.last_batch: keep`) counts as much as the others. If a run ends between two updates, the mini-batches since
    the last one make none; the run says so. Its checkpoint contains their gradients, and a resume that makes the run
    longer continues with them. A run shorter than an update is refused. Replicas average gradients once an update.
    Default: 1."""
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay of an exponential moving average of the weights, such as 0.999, which evaluations, predictions and exports
    use in place of the weights: after an update it is this share of the average before plus the rest of the new
    weights. Training goes on with the weights themselves. The first update begins it. null: no average."""
    rate_factors: dict[str, PositiveFloat] = Field(default_factory=dict)
    """Factors by which the rates of parts are multiplied, by the name of the part, such as {head: 10}. Parts are `f`
    (the encoder); `b`, `g` (the label encoder) and `h` (the label decoder) in Associated Learning; `p` (the projection)
    and `head` in the other methods. Default: none."""

    def decays(self, dimensions: int) -> bool:
        """Whether weight decay applies to a parameter of so many dimensions."""
        return True


class DecayingSection(OptimizerSection):
    """The keys of optimizers whose weight decay may leave parameters out."""

    decay: Literal["all", "weights"] = "all"
    """Parameters that weight decay applies to. `all`: every parameter. `weights`: parameters of two dimensions or
    more, so neither biases nor norms. Default: all."""

    def decays(self, dimensions: int) -> bool:
        return self.decay == "all" or dimensions >= 2


class AdamSection(OptimizerSection):
    """The keys of Adam, and of the optimizers that use it."""

    lr: PositiveFloat = 1e-3
    """Learning rate. Default: 0.001."""
    betas: Annotated[tuple[Decay, Decay], Field(strict=False)] = (0.9, 0.999)
    """Decay rates of Adam's running means of the gradient and its square. Default: [0.9, 0.999]."""
    eps: PositiveFloat = 1e-8
    """Constant that Adam adds to the denominator. Default: 1e-8."""


class FusedSection(DecayingSection):
    """The keys of optimizers of which torch has a fused form."""

    fused: bool = False
    """Whether one kernel updates all parameters of a component. It rounds differently, so it changes the bits. Default:
    false."""


class ForeignSection(FreeSection, DecayingSection):
    """The keys of optimizers whose class is torch's or the user's; further ones go to its constructor."""

    weight_decay: NonNegativeFloat | None = None  # type: ignore[assignment]  # alray's own kinds have a number
    """Weight decay. null: that of the class."""


class OwnOptimizer(OwnCode, ForeignSection, extra="allow"):
    """An optimizer of the user; the keys that are not listed here go to its constructor."""

    kind: Annotated[Name, OfPackage("alray.optimizers")]
    """The class, as `python:package.module.Class`, or the name that an installed package gives it. It derives from
    `torch.optim.Optimizer`. Those of torch.optim that have no name here are `kind: torch`."""


OPTIMIZERS = Kind("optimizers", OptimizerSection, OwnOptimizer, default="adam")
"""All optimizers."""
Optimizer = Annotated[OptimizerSection, OPTIMIZERS]
