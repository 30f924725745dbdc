"""The full rate times `factor` each time the metric has not become better for a while, as torch's `ReduceLROnPlateau`
has it with `threshold_mode="rel"`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from alray.config.sections.kind import Finding
from alray.config.sections.lr_schedule import LrScheduleSection
from alray.config.sections.paths import Path
from alray.config.sections.section import NonNegativeFloat, NonNegativeInt
from alray.core.metric import Metric
from alray.core.run_folder.records import Plateau

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec
    from alray.runtime.stage.learning_rate import Moment

_LEAST = 1e-8
"""A smaller change of the rate is none, as in torch."""


class OnPlateau(LrScheduleSection):
    """A rate that is multiplied by `factor` when the metric of the validation set has not become better for more than
    `patience` evaluations. The metric says whether its highest or its lowest value is the best."""

    implementation = "rate"
    follows_metric = True

    kind: Literal["plateau"]
    """`plateau`."""
    factor: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Factor by which the rate is multiplied. Default: 0.1."""
    patience: NonNegativeInt = 10
    """Evaluations without a better value after which the next one lowers the rate. Default: 10."""
    threshold: NonNegativeFloat = 1e-4
    """How much better a value must be than the best one, as a share of that. Default: 0.0001."""
    cooldown: NonNegativeInt = 0
    """Evaluations after a change of the rate that do not count. Default: 0."""
    min_lr: NonNegativeFloat = 0.0
    """Lowest rate. It is not scaled with the batch. Default: 0."""

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        if not spec.data.has_validation:
            hint = "set data.validation_fraction, to 0.1 say"
            yield (*at, "kind"), "`plateau` follows the validation set, and there is none", hint
        if spec.run.evaluate_every is None:
            yield (*at, "kind"), "there are no evaluations before the end", "set run.evaluate_every"

    def after(self, before: Plateau, value: float | None, metric: Metric) -> Plateau:
        best, bad, cooldown, changes = before.best, before.bad + 1, before.cooldown, before.changes
        value = math.nan if value is None else value
        if best is None:
            better = not math.isnan(value)
        else:
            better = value < best * (1 - self.threshold) if metric.lowest else value > best * (1 + self.threshold)
        if better:
            best, bad = value, 0
        if cooldown:
            cooldown, bad = cooldown - 1, 0
        if bad > self.patience:
            cooldown, bad, changes = self.cooldown, 0, changes + 1
        return Plateau(best=best, bad=bad, cooldown=cooldown, changes=changes)


def rate(section: OnPlateau, at: Moment) -> float:
    found = at.full
    for _ in range(at.changes):
        lower = max(found * section.factor, section.min_lr)
        found = lower if found - lower > _LEAST else found
    return found
