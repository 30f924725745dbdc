"""`replicas.disturbance`: replicas that are slowed on purpose, for tests and studies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from alray.spec.choice import Choice
from alray.spec.section import NonNegativeInt, PositiveInt, Section, refusal


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
