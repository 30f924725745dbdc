"""`replicas`: copies of the whole pipeline that share every mini-batch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from alray.spec.choice import ByShape, Choice
from alray.spec.duration import Duration, SpecDuration
from alray.spec.section import Counts, NonNegativeInt, PositiveInt, Section, describe, refusal


class DisturbanceSection(Section):
    """What every disturbance has."""

    kind: str
    """Which disturbance."""
    factor: Annotated[float, Field(ge=1)]
    """What a slowed replica's time of computing is multiplied by."""


class FixedDisturbance(DisturbanceSection):
    """The same replicas in the same epochs of every run."""

    kind: Literal["fixed"] = "fixed"
    """`fixed`."""
    workers: Annotated[tuple[NonNegativeInt, ...], Field(strict=False, min_length=1)]
    """Which replicas, counted from 0."""
    epochs: Annotated[tuple[PositiveInt, PositiveInt], Field(strict=False)]
    """First and last epoch in which they are slowed, counted from 1, both included."""

    @model_validator(mode="after")
    def _first_before_last(self) -> FixedDisturbance:
        first, last = self.epochs
        if last < first:
            raise refusal(f"it would begin in epoch {first} and end in epoch {last}", "name the first epoch first")
        return self


class RandomDisturbance(DisturbanceSection):
    """Each replica has bad luck now and then (the test of Ye et al., arXiv 2007.11831); drawn from the run's seed."""

    kind: Literal["random"]
    """`random`."""
    chance: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Chance, at the beginning of an epoch, that a replica that is not slowed becomes so."""
    least_epochs: PositiveInt = 4
    """Epochs it then stays slowed, at least."""
    most_epochs: PositiveInt = 20
    """Epochs it then stays slowed, at most; every number between is as likely."""

    @model_validator(mode="after")
    def _least_below_most(self) -> RandomDisturbance:
        if self.most_epochs < self.least_epochs:
            raise refusal(
                f"least_epochs is {self.least_epochs} and most_epochs {self.most_epochs}",
                "set most_epochs to at least least_epochs",
            )
        return self


Disturbance = Annotated[
    Annotated[FixedDisturbance, Tag("fixed")] | Annotated[RandomDisturbance, Tag("random")],
    Discriminator(Choice("kind", default="fixed")),
]


class CompressionSection(Section):
    """What every compression has."""

    kind: str
    """Which compression."""


class NoCompression(CompressionSection):
    """Gradients travel as they are."""

    kind: Literal["none"] = "none"
    """`none`."""


class Fp16(CompressionSection):
    """Gradients travel, and are added up, as 16-bit floats: half the bytes, largest value 65,504."""

    kind: Literal["fp16"]
    """`fp16`."""


class Bf16(CompressionSection):
    """Gradients travel, and are added up, as bfloat16: half the bytes, the range of float32, 8 bits of precision."""

    kind: Literal["bf16"]
    """`bf16`."""


class PowerSgd(CompressionSection):
    """PowerSGD (Vogels et al. 2019, arXiv 1905.13727): matrices travel as two thin factors; error feedback, warm start.

    Parameters of one dimension travel as they are.
    """

    kind: Literal["powersgd"]
    """`powersgd`."""
    rank: PositiveInt = 2
    """Columns of the factors. More columns send more bytes and lose less."""
    start_iteration: NonNegativeInt = 0
    """Updates at the beginning of a run whose gradients travel whole."""


class TopK(CompressionSection):
    """The entries of largest magnitude travel; what stays behind is added to the next gradient (error feedback)."""

    kind: Literal["top_k"]
    """`top_k`."""
    fraction: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Share of a component's gradient that travels, in 0..1."""


def _named(value: Any) -> Any:
    """A bare name is that kind with its defaults."""
    return {"kind": value} if isinstance(value, str) else value


CompressionSections = Annotated[
    Annotated[NoCompression, Tag("none")]
    | Annotated[Fp16, Tag("fp16")]
    | Annotated[Bf16, Tag("bf16")]
    | Annotated[PowerSgd, Tag("powersgd")]
    | Annotated[TopK, Tag("top_k")],
    Discriminator(Choice("kind", default="none")),
]
CompressionName = Literal["none", "fp16", "bf16", "powersgd", "top_k"]
Compression = Annotated[
    CompressionSections, BeforeValidator(_named, json_schema_input_type=CompressionSections | CompressionName)
]
"""A section with its `kind`, or the bare name of one."""


AllReduce = Literal["backend", "ring", "halving_doubling", "tree", "star"]


def _in_steps(duration: Duration) -> Duration:
    if duration.unit != "steps":
        raise refusal(f"expected a number of mini-batches, got `{duration}`", "write `N steps`")
    return duration


class AverageEvery(Section):
    """Model averaging (local SGD; Stich 2019, arXiv 1805.09767): replicas train apart, then take the mean weights.

    The mean is weighted by the replicas' shares of the mini-batch.
    """

    average_every: Annotated[
        SpecDuration,
        AfterValidator(_in_steps),
        WithJsonSchema({"type": "string", "pattern": r"^[0-9]+ *steps?$", "examples": ["8 steps"]}),
    ]
    """Mini-batches from one mean to the next, as `N steps`."""

    @property
    def num_steps(self) -> int:
        """Mini-batches from one mean to the next."""
        return int(self.average_every.count)


def _synchronise(value: Any) -> Any:
    if isinstance(value, dict | AverageEvery) or value == "every_step":
        return value
    raise refusal(
        f"expected `every_step` or a section, got {describe(value)}",
        "a section is such as {average_every: 8 steps}",
    )


class Replicas(Section):
    """Data parallelism: every replica takes its share of each mini-batch."""

    count: PositiveInt = 1
    """Number of replicas."""
    all_reduce: AllReduce = "backend"
    """How gradients are added up over the replicas. `backend`: by gloo or NCCL. The sums are the same but
    for rounding; messages and bytes differ."""
    compression: Compression = NoCompression()
    """How gradients are made smaller before they are sent: a section with `kind`, or a bare name. Default: none."""
    balance: Literal["fixed", "dynamic_batch_size"] = "fixed"
    """Samples of each replica. `fixed`: the same in every epoch. `dynamic_batch_size`: dealt anew after each epoch, by
    the time each replica spent computing (Ye et al., arXiv 2007.11831)."""
    engine: Literal["graph", "ray_train"] = "graph"
    """`graph`: alray's own. `ray_train`: backpropagation on one stage by Ray Train's TorchTrainer and torch's DDP, to
    compare with: not with `--inline`, and what PowerSGD keeps is not in its checkpoints."""
    synchronise: Annotated[
        Annotated[AverageEvery, Tag("section")] | Annotated[Literal["every_step"], Tag("name")],
        Discriminator(ByShape((dict, AverageEvery), "section", "name")),
        BeforeValidator(_synchronise),
    ] = "every_step"
    """`every_step`: gradients are averaged in each update, so that n replicas train as one would. A section: weights
    are averaged now and then, which is another mathematics."""
    sync_batch_norm: bool = False
    """Whether batch normalisation takes its statistics over all replicas, which then wait for each other in F and B:
    not with `--inline`. Default: each replica over its own share of the mini-batch."""
    disturbance: Disturbance | None = None
    """Slows replicas on purpose. null: none."""
    shares: Counts | None = None
    """Samples each replica takes of every mini-batch, one entry a replica; they add up to `data.batch_size`. null: as
    even as can be, the first replicas take one more where it does not divide."""
