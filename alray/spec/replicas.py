"""`replicas`: copies of the whole pipeline that share every mini-batch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Tag, WithJsonSchema

from alray.spec.choice import ByShape
from alray.spec.compression import Compression, NoCompression
from alray.spec.disturbance import Disturbance
from alray.spec.duration import Duration, SpecDuration
from alray.spec.section import Counts, PositiveInt, Section, describe, refusal

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
