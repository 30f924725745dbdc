"""The full rate times `factor` for each `every` that has passed since the start of the run."""

from __future__ import annotations

from alray.parts.rates.step.keys import Step
from alray.runtime.stage.learning_rate import Moment


def rate(section: Step, at: Moment) -> float:
    return at.full * section.factor ** (at.begun // max(1, at.mini_batches(section.every)))
