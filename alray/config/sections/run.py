"""`run`: the length of training, checkpoints, evaluations, failures and numeric types."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

from alray.config.sections.duration import Duration, SpecDuration
from alray.config.sections.section import (
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
    describe,
    did_you_mean,
    listed,
    nearest,
    refusal,
)
from alray.config.sections.trackers import Trackers
from alray.core.metric import SPLITS
from alray.core.run_folder.metrics import METRICS
from alray.core.run_folder.records import Standing

LENGTHS = ("epochs", "steps", "samples")
"""The keys of `run` for the length of training. Exactly one of them is given."""


_MEASURED = tuple(f"{split}_{metric}" for metric in METRICS for split in SPLITS)


def _measured(value: Any) -> Any:
    if value is not None and value not in _MEASURED:
        meant = nearest(value, _MEASURED) if isinstance(value, str) else None
        hint = did_you_mean(meant, "write a set and the metric of the task, such as validation_accuracy")
        raise refusal(f"expected one of {listed(_MEASURED)}, got {describe(value)}", hint)
    return value


MeasuredOn = Annotated[str, BeforeValidator(_measured), WithJsonSchema({"type": "string", "enum": list(_MEASURED)})]
"""A metric on one of the sets, such as `validation_accuracy`."""


class Checkpoint(Section):
    """When checkpoints are written, and how many are kept."""

    every: SpecDuration = Duration(1, "epochs")
    """Interval between two checkpoints. Default: 1 epoch."""
    keep: PositiveInt = 3
    """Number of newest checkpoints that are kept, besides the one with the best validation accuracy (or metric of
    another task). Older ones are deleted. Default: 3."""


class StopAt(Section):
    """Ends the run early, at the first evaluation at which the metric reaches the bound or patience ends."""

    metric: MeasuredOn | None = None
    """Metric that is compared with the bound: a set and the metric of the task, such as `validation_accuracy`, which
    lies in 0..1. null: that of the validation set."""
    above: float | None = None
    """Bound: stop if the metric is at least this value. Not together with `below`."""
    below: float | None = None
    """Bound: stop if the metric is at most this value. Not together with `above`."""
    patience: PositiveInt | None = None
    """Stop after this many evaluations in a row without a better validation accuracy, or metric of another task,
    whatever `metric` is. null: no limit."""

    @property
    def split(self) -> str:
        """The set on which the metric is measured."""
        return "validation" if self.metric is None else self.metric.partition("_")[0]

    @property
    def bounded(self) -> bool:
        """Whether a value of the metric ends the run."""
        return self.above is not None or self.below is not None

    @property
    def metric_name(self) -> str | None:
        """The metric; None: that of the task."""
        return None if self.metric is None else self.metric.partition("_")[2]

    def reached(self, standing: Standing) -> bool:
        """Whether a run with these evaluations ends."""
        if self.patience is not None and standing.best is not None and standing.since_best >= self.patience:
            return True
        value: float | None = getattr(standing.last, self.split)
        if value is None:
            return False
        if self.above is not None:
            return value >= self.above
        return self.below is not None and value <= self.below


class RunSection(Section):
    """The length of training, checkpoints, evaluations, failures and numeric types."""

    epochs: PositiveInt | None = None
    """Length of the run in passes over the training set. Give exactly one of `epochs`, `steps` and `samples`."""
    steps: PositiveInt | None = None
    """Length of the run in mini-batches."""
    samples: PositiveInt | None = None
    """Length of the run in samples. The run ends after the mini-batch that reaches this number."""
    checkpoint: Checkpoint | None = Checkpoint()
    """Checkpoints during the run, and one after each evaluation with a new best validation accuracy, or metric of
    another task. Default: one after each epoch. null: only one at the end."""
    evaluate_every: SpecDuration | None = Duration(1, "epochs")
    """Interval between two evaluations. Default: 1 epoch. null: only at the end."""
    test: Literal["always", "end"] = "always"
    """When the test set is measured. `always`: at every evaluation. `end`: only at the end of the run, which shortens
    the other evaluations. Default: always."""
    train: Literal["end", "never"] = "end"
    """When the training set is measured. `end`: at the end of the run, in a pass over the whole set. `never`: not at
    all, unless `stop_at` needs it. Default: end."""
    max_failures: NonNegativeInt = 3
    """Number of failures, without a newer checkpoint between them, that a run survives: it gives up at the next one.
    Default: 3."""
    deadline_s: PositiveFloat | None = None
    """Seconds in which no stage goes on, before the run continues from the last checkpoint: one of them is silent, busy
    with one action, or waiting for a sample, and all others wait for it. Starting, the first mini-batch and the first
    evaluation may take eight times as long. A sample that does not come a second time ends the run. null: from the
    plan, at least 15 s. A run with `--inline` has no deadline, and what is read before a run has none: Ctrl-C ends
    both. Default: null."""
    stop_at: StopAt | None = None
    """When the run ends early. null: never."""
    deterministic: bool = True
    """Whether only deterministic algorithms are used, so that the same spec gives the same bits. Default: true."""
    precision: Literal["float32", "float64", "bf16"] = "float32"
    """Numeric type of weights and activations. `bf16` is mixed precision: matrix products and convolutions compute in
    bfloat16; recurrent layers, weights, losses and what components pass on stay float32. With `float64` everything
    computes in it but torch's Muon, which orthogonalises in bfloat16; samples are read and random numbers drawn in
    float32, so a run begins with the weights of one in float32. Default: float32."""
    trackers: Trackers = ()
    """Programs outside that show the run while it is running: those of installed packages, such as `mlflow` and
    `wandb`, and your classes, such as `[mlflow, "python:my_tracker.Mine"]`. TensorBoard's files are always
    written. Default: none."""
    compile: bool = False
    """Whether torch.compile compiles each component, when it is first used. It needs a C++ compiler, and gives other
    bits than without, on any partition the same. Default: false."""

    def splits(self, *, last: bool) -> tuple[str, ...]:
        """The sets that an evaluation measures.

        Args:
            last: whether it is at the end of the run.
        """
        when = {"train": self.train, "validation": "always", "test": self.test}
        due = {"always", "end"} if last else {"always"}
        needed = None if self.stop_at is None else self.stop_at.split
        return tuple(split for split in when if when[split] in due or split == needed)
