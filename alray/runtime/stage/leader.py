"""When to evaluate, write a checkpoint and stop: stage 0 decides it for all stages (`alray.runtime.stage.cuts`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from alray.config.sections.duration import Duration
from alray.core.run_folder.metrics import METRICS
from alray.core.run_folder.records import EvaluationRecord
from alray.runtime.channel.message import CutFlag
from alray.runtime.stage.assignment import Assignment

Samples = Callable[[int], int]
"""Takes a number of mini-batches. Returns the samples that a run has seen after them."""

_END = CutFlag.EVALUATE | CutFlag.CHECKPOINT | CutFlag.STOP


@dataclass
class Control:
    """The requests of the driver to stage 0. Another thread sets them; stage 0 reads them between mini-batches."""

    stop_requested: bool = False


@dataclass
class Timer:
    """Says when something is due that recurs every `N steps`, `N samples`, `N epochs` or `N s`.

    Attributes:
        every: a spec duration (`count`, `unit`), or None for never.
    """

    every: Duration | None
    steps_per_epoch: int
    samples: Samples

    def __post_init__(self) -> None:
        self._last_s = time.monotonic()
        self._period = Fraction(0)  # in seconds, samples or mini-batches
        if self.every is not None:
            # Exact: 0.07 epochs of 100 steps are 7 steps, not 7.000000000000001, which step 7 would miss.
            per_unit = self.steps_per_epoch if self.every.unit == "epochs" else 1
            self._period = Fraction(str(self.every.count)) * per_unit

    def due(self, step: int) -> bool:
        """Whether it is due after `step` mini-batches. A function of the step alone unless it is given in seconds."""
        if self.every is None:
            return False
        if self.every.unit == "s":
            if time.monotonic() - self._last_s < self._period:
                return False
            self._last_s = time.monotonic()
            return True
        before, after = step - 1, step
        if self.every.unit == "samples":
            before, after = self.samples(before), self.samples(after)
        return after // self._period > before // self._period


class Leader:
    """Decides the cuts of a run."""

    def __init__(self, assignment: Assignment, control: Control) -> None:
        run, per_epoch = assignment.spec.run, assignment.data.steps_per_epoch

        def samples(step: int) -> int:
            return assignment.position(step)["samples"]

        self.total_steps = assignment.total_steps
        self.standing = assignment.start.standing.of_metric(assignment.spec.task.measures.name)
        self._control = control
        self._rates = assignment.spec.lr_schedule
        self._regular = 0  # mini-batches before the last evaluation that was due
        self._changes = self.standing.plateau.changes  # of the rate, that the stages know
        self._stop_after = assignment.stop_after
        self._evaluate = Timer(run.evaluate_every, steps_per_epoch=per_epoch, samples=samples)
        every = run.checkpoint.every if run.checkpoint else None
        self._checkpoint = Timer(every, steps_per_epoch=per_epoch, samples=samples)
        self._keeps_best = run.checkpoint is not None
        self._stop_at = run.stop_at
        self._splits = run.splits

    def over(self, step: int) -> bool:
        """Whether the run ends after `step` mini-batches: by its length, or by an evaluation that was made there."""
        if step >= self.total_steps:
            return True
        stop_at, standing = self._stop_at, self.standing
        return stop_at is not None and standing.step == step and stop_at.reached(standing)

    def cut_after(self, step: int) -> int:
        """Flags of the cut after `step` mini-batches; 0 for none."""
        flags = 0
        if self._evaluate.due(step):
            flags |= CutFlag.EVALUATE
            self._regular = step
        if self._checkpoint.due(step):
            flags |= CutFlag.CHECKPOINT
        if self.over(step):
            flags |= _END
        elif self._control.stop_requested or step == self._stop_after:
            flags |= CutFlag.CHECKPOINT | CutFlag.STOP
        return flags

    def splits(self, step: int) -> tuple[str, ...]:
        """The splits that an evaluation after `step` mini-batches measures. A stop that was asked for is not the end of
        the run."""
        return self._splits(last=self.over(step))

    def heard(self, evaluation: EvaluationRecord) -> None:
        """Take note of an evaluation. One at the end of the run, which a longer run would not make, changes no rate."""
        before, self.standing = self.standing, self.standing.after(evaluation)
        if evaluation.step == self._regular > before.step:
            plateau = self._rates.after(before.plateau, evaluation.validation, METRICS[evaluation.metric])
            self.standing = self.standing.model_copy(update={"plateau": plateau})

    @property
    def minds_evaluations(self) -> bool:
        """Whether a second cut may follow an evaluation."""
        return self._stop_at is not None or self._keeps_best or self._rates.follows_metric

    def cut_after_evaluation(self, step: int, flags: int) -> int:
        """Flags of a second cut after `step` mini-batches, because of what the cut with `flags` evaluated.

        The end of the run; or a checkpoint of the best weights so far, unless that cut wrote one, and another learning
        rate.
        """
        if self.over(step):
            return _END
        another = CutFlag.RATE if self.standing.plateau.changes > self._changes else 0
        self._changes = self.standing.plateau.changes
        best = self.standing.best
        is_best = best is not None and best.step == step
        saves = self._keeps_best and is_best and not flags & CutFlag.CHECKPOINT
        return another | (CutFlag.CHECKPOINT if saves else 0)
