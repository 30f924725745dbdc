"""The table of all schedules."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from alray.core.errors import FAULTS_OF_USER_CODE, PlanError
from alray.core.packages import Provided, provided, require
from alray.core.parts import module_of, names_of
from alray.planning.schedules.listed import is_listed, schedule_of
from alray.planning.schedules.schedule import Schedule

GROUP = "alray.schedules"
"""The group of entry points; each is a `Schedule`."""
_KEY = "pipeline.schedule"


class ScheduleTable(dict[str, Schedule]):
    """Schedules by name. The schedule of a file is no entry, and is found by the text that stands for the file."""

    def __missing__(self, name: str) -> Schedule:
        """Raises PlanError where there is no schedule of this name."""
        if is_listed(name):
            return schedule_of(name)
        if name in provided(GROUP):
            return _of_package(require(f"{GROUP}:{name}"))
        raise PlanError(f"unknown schedule `{name}`", hint=f"choose one of {', '.join(self)}", key=_KEY)


@cache
def _of_package(package: Provided) -> Schedule:
    """Raises PlanError where the package cannot be imported or has no schedule of this name."""
    called = f"`{package.name}` of {package.origin}"
    try:
        found = getattr(import_module(package.module), package.attribute, None)
    except FAULTS_OF_USER_CODE as error:
        hint = "correct the package, or install what it needs"
        what = f"{type(error).__name__}: {error}"
        raise PlanError(f"{called} cannot be imported: {what}", hint=hint, key=_KEY) from error
    if not isinstance(found, Schedule) or found.name != package.name:
        hint = f"{package.module}:{package.attribute} must be a {Schedule.__module__}.Schedule of this name"
        raise PlanError(f"{called} is no schedule of this name", hint=hint, key=_KEY)
    return found


def _order(schedule: Schedule) -> tuple[bool, bool, str]:
    """Local losses first, and in each family what `auto` means; the others by their names."""
    return not schedule.local_losses, not schedule.default_on, schedule.name


SCHEDULES = ScheduleTable(
    {
        each.name: each
        for each in sorted((module_of("schedules", name).SCHEDULE for name in names_of("schedules")), key=_order)
    }
)
"""Every schedule by its name, and those of files by their text."""


def of_package(name: object) -> bool:
    """Whether a schedule of alray does not have this name, and one of an installed package does."""
    return isinstance(name, str) and name not in SCHEDULES and name in provided(GROUP)


def schedules_for(*, local_losses: bool) -> tuple[Schedule, ...]:
    """The schedules of one family of methods."""
    return tuple(schedule for schedule in SCHEDULES.values() if schedule.local_losses == local_losses)


def default_schedule(*, local_losses: bool, stages: int) -> Schedule:
    """The schedule that `pipeline.schedule: auto` chooses."""
    where = "one stage" if stages == 1 else "several stages"
    return next(each for each in schedules_for(local_losses=local_losses) if where in each.default_on)


def schedules_on(stages: int, *, local_losses: bool) -> tuple[Schedule, ...]:
    """The schedules to compare. On one stage there is nothing to overlap: only the default one is left, and that of a
    pipeline if the method has any, for in micro-batches a mini-batch needs less memory."""
    if stages == 1:
        own = default_schedule(local_losses=local_losses, stages=1)
        return (own,) if local_losses else (own, default_schedule(local_losses=False, stages=2))
    return tuple(schedule for schedule in schedules_for(local_losses=local_losses) if not schedule.one_stage)
