"""`replicas`: copies of the whole pipeline that share every mini-batch."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from alray.config.sections.all_reduce import ALL_REDUCES, AllReduce
from alray.config.sections.choice import ByShape, Choice
from alray.config.sections.compression import COMPRESSIONS, Compression
from alray.config.sections.duration import Steps
from alray.config.sections.section import (
    Counts,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Section,
    refusal,
)

OF_OUTER_OPTIMIZER = "an outer optimizer"
"""What `Replicas.kept` says of one, whatever its settings: they may change."""


class DisturbanceSection(Section):
    """Slows down replicas on purpose, for tests and studies. The keys of every disturbance."""

    kind: str
    """Name of the disturbance."""
    factor: Annotated[float, Field(ge=1)] = 1.0
    """Factor by which the computing time of a slowed replica is multiplied. Default: 1."""
    added_s: Annotated[tuple[NonNegativeFloat, NonNegativeFloat], Field(strict=False)] | None = None
    """Smallest and largest number of seconds that an epoch of a slowed replica takes longer, whatever its share of the
    mini-batch; drawn uniformly for each epoch. The code of Ye et al. (arXiv 2007.11831) adds 5 to 10. null: none."""

    @model_validator(mode="after")
    def _slows(self) -> DisturbanceSection:
        if self.factor == 1.0 and self.added_s is None:
            raise refusal("a disturbance slows nobody", "set factor above 1, or added_s")
        if self.added_s is not None and self.added_s[0] > self.added_s[1]:
            raise refusal("the largest of added_s is below the smallest", "write the smallest first: added_s: [5, 10]")
        return self


class FixedDisturbance(DisturbanceSection):
    """Slows the given replicas in the given epochs."""

    kind: Literal["fixed"] = "fixed"
    """`fixed`."""
    workers: Annotated[tuple[NonNegativeInt, ...], Field(strict=False, min_length=1)]
    """Numbers of the slowed replicas, counted from 0."""
    epochs: Annotated[tuple[PositiveInt, PositiveInt], Field(strict=False)]
    """First and last slowed epoch, counted from 1, both included."""


class RandomDisturbance(DisturbanceSection):
    """Slows replicas at random times, drawn from the seed of the run. With `added_s: [5, 10]` it is the test that the
    code of Ye et al. (arXiv 2007.11831) makes."""

    kind: Literal["random"]
    """`random`."""
    chance: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Probability that a replica becomes slow at the start of an epoch. Default: 0.1."""
    least_epochs: PositiveInt = 4
    """Smallest number of epochs that it stays slow. Default: 4."""
    most_epochs: PositiveInt = 20
    """Largest number of epochs that it stays slow; the number is drawn uniformly. Default: 20."""


Disturbance = Annotated[
    Annotated[FixedDisturbance, Tag("fixed")] | Annotated[RandomDisturbance, Tag("random")],
    Discriminator(Choice("kind", default="fixed")),
]


class OuterOptimizer(Section):
    """DiLoCo (Douillard et al., arXiv 2311.08105, algorithm 1): SGD with Nesterov's momentum on what all replicas start
    from. Its gradient is the mean, over the replicas, of the weights at the last meeting minus those now.

    With lr 1 and momentum 0 it is the mean of the weights.
    """

    lr: Annotated[float, Field(gt=0, le=10)] = 0.7
    """Learning rate. Default: 0.7, as section 3 of the paper."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Nesterov's momentum; 0: none. Default: 0.9, as section 3 of the paper."""


class AverageEvery(Section):
    """Model averaging (local SGD; Stich 2019, arXiv 1805.09767): replicas train separately and then average weights.

    The mean is weighted by the replicas' shares of the mini-batch. Evaluations, checkpoints and the end of a run
    between two averages show and keep the mean, and do not change the training.
    """

    average_every: Steps
    """Number of mini-batches between two averages, as `N steps`."""
    outer: OuterOptimizer | None = None
    """Optimizer of what replicas start from after a meeting (DiLoCo): a section, or {} for that of the paper.
    null: they start from the mean of their weights."""
    fragments: PositiveInt = 1
    """Groups of components that meet in turns, evenly over the mini-batches between two averages: component i is in
    group i modulo their number (Streaming DiLoCo; Douillard et al., arXiv 2501.18512, section 2.2). At a meeting fewer
    bytes are sent, and as many in all. Default: 1, all components meet at once."""
    delay: NonNegativeInt = 0
    """Mini-batches from a meeting until its result is taken, in which replicas train on while it is sent. They then
    go on from the mean of the result and their own weights (arXiv 2501.18512, section 2.3, with alpha 0.5). It needs
    `outer`. Default: 0."""

    @model_validator(mode="after")
    def _meets_in_time(self) -> AverageEvery:
        if self.delay and self.outer is None:
            raise refusal("`delay` is of the outer optimizer, and there is none", "set outer to {}, or leave delay out")
        for key, value, most in (
            ("fragments", self.fragments, self.num_steps),
            ("delay", self.delay, self.num_steps - 1),
        ):
            if value > most:
                raise refusal(
                    f"`{key}` is {value}, and replicas meet every {self.num_steps} mini-batches",
                    f"set it to {most} at most",
                )
        return self

    @property
    def copies(self) -> int:
        """How many further copies of the parameters a replica holds."""
        if self.outer is None:
            return 0
        return 1 + (self.outer.momentum > 0) + (self.delay > 0)

    def is_due(self, component: int, step: int) -> bool:
        """Whether replicas average the weights of a component after mini-batch `step`, counted from 1."""
        offset = component % self.fragments * self.num_steps // self.fragments
        return step > 0 and (step - offset) % self.num_steps == 0

    @property
    def num_steps(self) -> int:
        """The number of mini-batches between two averages."""
        return int(self.average_every.count)


class Replicas(Section):
    """Data parallelism: every replica processes its share of each mini-batch."""

    count: PositiveInt = 1
    """Number of replicas. Default: 1."""
    all_reduce: AllReduce = ALL_REDUCES.default_section()
    """Algorithm that sums gradients over the replicas: a section with `kind`, or the bare name of a kind. `backend`:
    the one of gloo. All algorithms give the same sums up to rounding; they differ in the number and size of messages.
    Default: backend."""
    compression: Compression = COMPRESSIONS.default_section()
    """Compression of gradients before they are sent: a section with `kind`, or the bare name of a kind.
    Default: none."""
    balance: Literal["fixed", "dynamic_batch_size"] = "fixed"
    """Number of samples of each replica. `fixed`: the same in every epoch. `dynamic_batch_size`: distributed again
    after each epoch, according to the computing times of the replicas (Ye et al., arXiv 2007.11831). A replica keeps
    one sample at least, and two where batch normalisation gets maps of one pixel. Default: fixed."""
    engine: Literal["graph", "ray_train"] = "graph"
    """Engine of data parallelism. `graph`: that of alray. `ray_train`: Ray Train's TorchTrainer with torch's DDP, as a
    baseline, for backpropagation on one stage. It does not run with `--inline`, and its checkpoints do not contain the
    state of PowerSGD. Default: graph."""
    synchronise: Annotated[
        Annotated[AverageEvery, Tag("section")] | Annotated[Literal["every_step"], Tag("name")],
        Discriminator(ByShape((dict, AverageEvery), "section", "name")),
    ] = "every_step"
    """When replicas synchronise. `every_step`: they average the gradients in each update, so that n replicas train as
    one replica would. A section: they average the weights from time to time, which changes the mathematics.
    Default: every_step."""
    sync_batch_norm: bool = False
    """Whether batch normalisation computes its statistics over all replicas. The replicas then wait for each other in
    the forward and backward pass; it does not run with `--inline`. Default: false, each replica uses its share of
    the mini-batch."""
    disturbance: Disturbance | None = None
    """Disturbance that slows replicas on purpose. null: none."""
    shares: Counts | None = None
    """Number of samples of a mini-batch for each replica, one entry for each replica. Their sum is `data.batch_size`.
    null: equal shares; if the batch does not divide evenly, the first replicas get one sample more."""

    @property
    def kept(self) -> tuple[str, str]:
        """What a replica keeps from step to step besides weights and optimizers: of which kind it is, and the settings
        on which its form may depend. The state of one kind never goes on in another."""
        if self.synchronise != "every_step" and self.synchronise.outer is not None:
            return OF_OUTER_OPTIMIZER, ""
        # Without defaults: a key that a later version adds does not make it another one.
        settings = self.compression.model_dump(mode="json", exclude_defaults=True)
        return self.compression.kind, json.dumps(settings, sort_keys=True)

    def average_interval(self, accumulate: int) -> int:
        """The number of mini-batches between two averages of gradients or weights.

        Args:
            accumulate: those of an update.
        """
        return accumulate if self.synchronise == "every_step" else self.synchronise.num_steps
