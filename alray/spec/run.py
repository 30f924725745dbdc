"""`run`: how long to train, and what happens on the way."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from alray.spec.duration import Duration, SpecDuration
from alray.spec.section import NonNegativeInt, PositiveInt, Section, listed, refusal

LENGTHS = ("epochs", "steps", "samples")
"""The keys of `run` of which exactly one says how long a run is."""


class Checkpoint(Section):
    """When a checkpoint is written, and how many are kept."""

    every: SpecDuration = Duration(1, "epochs")
    """From one checkpoint to the next."""
    keep: PositiveInt = 3
    """Newest checkpoints that are kept; older ones are deleted."""


class StopAt(Section):
    """Ends the run early, at the first evaluation where the metric passes the bound."""

    metric: Literal["train_accuracy", "validation_accuracy", "test_accuracy"]
    """What is looked at: a share in 0..1."""
    above: Annotated[float, Field(ge=0, le=1)] | None = None
    """Stop where the metric is at least this."""
    below: Annotated[float, Field(ge=0, le=1)] | None = None
    """Stop where the metric is at most this."""

    @model_validator(mode="after")
    def _one_bound(self) -> StopAt:
        if (self.above is None) == (self.below is None):
            raise refusal("exactly one of `above` and `below` is needed", "add `above: 0.95`, say, or remove one")
        return self


class RunSection(Section):
    """Length, checkpoints, evaluations, failures and numbers."""

    epochs: PositiveInt | None = None
    """Length in passes over the training set. Exactly one of `epochs`, `steps` and `samples` is given."""
    steps: PositiveInt | None = None
    """Length in mini-batches."""
    samples: PositiveInt | None = None
    """Length in samples seen; the mini-batch in which that number is reached is finished."""
    checkpoint: Checkpoint | None = Checkpoint()
    """Checkpoints on the way. null: only the one at the end."""
    evaluate_every: SpecDuration | None = Duration(1, "epochs")
    """From one evaluation to the next. null: only at the end."""
    max_failures: NonNegativeInt = 3
    """Failures without a newer checkpoint between them after which the run gives up."""
    stop_at: StopAt | None = None
    """Bound at which the run ends early. null: none."""
    deterministic: bool = True
    """Whether only deterministic algorithms are used, so that the same spec gives the same bits."""
    precision: Literal["float32", "float64"] = "float32"
    """Type of weights and activations."""

    @model_validator(mode="after")
    def _one_length(self) -> RunSection:
        given = [key for key in LENGTHS if getattr(self, key) is not None]
        if not given:
            raise refusal("how long to train is not said", f"add {listed(LENGTHS)}")
        if len(given) > 1:
            raise refusal(f"{listed(given, 'and')} each say how long to train", "keep one of them")
        return self
