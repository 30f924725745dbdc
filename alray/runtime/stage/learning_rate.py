"""The learning rate of a mini-batch: from the spec alone, unless it follows the metric."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

from alray.config.made import Load, class_of, code_of, making
from alray.config.sections.duration import Duration
from alray.config.sections.lr_schedule import RATES, LrScheduleSection
from alray.config.sections.own_code import OwnCode
from alray.config.sections.spec import Spec
from alray.config.user_code import named
from alray.core.errors import SpecError, UserCodeError
from alray.runtime.workload import DataFacts


@dataclass(frozen=True)
class Moment:
    """When a rate is asked for, and what it depends on.

    Attributes:
        begun: how many mini-batches were completed before the first one of this update.
        warm_up: mini-batches of the warm-up.
        full: the optimizer's rate, scaled with the batch.
        mini_batches: the number of mini-batches in a duration.
        total_steps: mini-batches of the run.
        accumulate: mini-batches of an update.
        changes: how often the metric has changed it.
    """

    begun: int
    warm_up: int
    full: float
    mini_batches: Callable[[Duration], int]
    total_steps: int
    accumulate: int
    changes: int = 0

    def share_since_warm_up(self, steps: float) -> float:
        """How much of so many mini-batches after the warm-up has passed, in 0..1."""
        return share_of(self.begun - self.warm_up, steps)


Rate = Callable[[Moment], float]
"""How a rate changes: its value at a moment after the warm-up."""


class Rates:
    """The learning rates of a run."""

    def __init__(self, spec: Spec, load: Load) -> None:
        """Raises SpecError if a rate of the user cannot be made."""
        self._spec = spec
        self._rate = rate_of(spec.lr_schedule, load)

    def at(self, step: int, *, data: DataFacts, total_steps: int, changes: int = 0) -> float:
        """That of mini-batch `step`, counted from 1.

        The full rate is the optimizer's, scaled with the batch (`batch_factor`). Over the first `warmup_epochs` epochs
        the rate rises in equal steps, one a mini-batch: from zero (`warmup_from`), so that the last mini-batch has the
        full rate, or from the optimizer's, which the first one has, so that the first one after the warm-up has the
        full rate (Goyal et al. 2017, arXiv 1706.02677, section 2.2). Then the rate of the spec says it
        (`alray/parts/rates`). The mini-batches of an update share one rate, that of the same update in a run with
        mini-batches so many times as large.

        Args:
            changes: how often the metric has changed the rate.

        Raises:
            UserCodeError: if a schedule of the user's raises an error, or returns no rate.
        """
        base, accumulate = self._spec.optimizer.lr, self._spec.optimizer.accumulate
        schedule, batch_size = self._spec.lr_schedule, self._spec.data.batch_size
        mini_batches = partial(data.mini_batches, batch_size=batch_size)
        full = base * batch_factor(schedule, batch_size * accumulate)
        warm_up = schedule.warm_up(mini_batches)
        begun = (step - 1) // accumulate * accumulate  # mini-batches before those of this update
        if begun < warm_up:
            if schedule.warmup_from == "base":
                return between(base, full, begun / warm_up)
            return full * min(1.0, (begun + accumulate) / warm_up)
        return float(self._rate(Moment(begun, warm_up, full, mini_batches, total_steps, accumulate, changes)))


def rate_of(section: LrScheduleSection, load: Load) -> Rate:
    """The rate of a spec: of a user's class an object, of a user's function the function with its fields.

    Raises SpecError if a rate of the user cannot be made.
    """
    found = code_of(RATES, section, load)
    if not isinstance(section, OwnCode):
        return partial(found, section)
    title = f"rate `{section.kind}`"
    if isinstance(found, FunctionType):
        return partial(_rate_of_user, title, partial(found, **section.fields))
    kind = class_of(RATES, section, object, load, key="lr_schedule.kind")
    with making(title, "it is called as Class(**fields)", key="lr_schedule", kind=kind):
        made = kind(**section.fields)
    if not callable(made):
        raise SpecError(
            f"{title} cannot be called", key="lr_schedule.kind", hint="give its class `def __call__(self, at)`"
        )
    return partial(_rate_of_user, title, made)


def _rate_of_user(title: str, rate: Callable[[Moment], Any], moment: Moment) -> float:
    """What a user's rate returns. Raises UserCodeError if it raises anything, or returns no finite number of 0 or
    more."""
    at = f"mini-batch {moment.begun + 1}"
    with named(title, at, key="lr_schedule.kind"):
        found = rate(moment)
    value = math.nan
    with suppress(TypeError, ValueError):
        value = float(found)
    if not (math.isfinite(value) and value >= 0.0):
        raise UserCodeError(
            f"{title} returned {found!r} at {at}", key="lr_schedule", hint="return a finite number of 0 or more"
        )
    return value


def batch_factor(schedule: LrScheduleSection, samples: int) -> float:
    """Return the factor for a rate tuned for `reference_batch_size` samples, where an update has `samples` samples.

    linear        samples / reference          (Goyal et al. 2017, arXiv 1706.02677, section 2.1)
    square_root   sqrt(samples / reference)    (Krizhevsky 2014, arXiv 1404.5997, section 5: the variance of an update)
    """
    if schedule.scale_with_batch == "none":
        return 1.0
    assert schedule.reference_batch_size is not None, "a spec that scales rates gives the batch that they are meant for"
    ratio = samples / schedule.reference_batch_size
    return float(ratio) if schedule.scale_with_batch == "linear" else math.sqrt(ratio)


def between(first: float, last: float, share: float) -> float:
    """`share` of the way from first to last, in 0..1; exactly first at 0 and last at 1."""
    return first * (1.0 - share) + last * share


def cosine(share: float) -> float:
    """Half a cosine, from 1 at 0 to 0 at 1."""
    return (1.0 + math.cos(math.pi * share)) / 2.0


def share_of(done: float, steps: float) -> float:
    """How much of `steps` is done, in 0..1."""
    return min(1.0, done / steps) if steps > 0 else 1.0
