"""The full rate times `factor` for each entry of `at` that has passed since the start of the run."""

from __future__ import annotations

from alray.parts.rates.multi_step.keys import MultiStep
from alray.runtime.stage.learning_rate import Moment


def rate(section: MultiStep, at: Moment) -> float:
    return at.full * section.factor ** sum(at.begun >= at.mini_batches(each) for each in section.at)
