"""The table of all schedules."""

from __future__ import annotations

from alray.core.errors import PlanError
from alray.planning.schedules import (
    dualpipe_v,
    gpipe,
    interleaved_1f1b,
    naive,
    one_f_one_b,
    overlapped,
    parallel_backward,
    sequential,
    single,
    streamed,
    two_versions,
    zb_v,
    zero_bubble,
)
from alray.planning.schedules.listed import is_listed, listed
from alray.planning.schedules.schedule import Schedule


def table(*schedules: Schedule) -> dict[str, Schedule]:
    """The schedules by name.

    Raises ValueError unless names differ and `auto` means one schedule for each family of methods, on one stage and on
    several.
    """
    names = {schedule.name: schedule for schedule in schedules}
    if len(names) < len(schedules):
        raise ValueError("two schedules have the same name")
    for methods in ("local losses", "backpropagation"):
        for where in ("one stage", "several stages"):
            own = [each.name for each in schedules if each.methods == methods and where in each.default_on]
            if len(own) != 1:
                raise ValueError(f"`auto` must mean one schedule for {methods} on {where}, not {own}")
    return names


class Table(dict[str, Schedule]):
    """Schedules by name. The schedule of a file is no entry, and is found by the text that stands for the file."""

    def __missing__(self, name: str) -> Schedule:
        """Raises PlanError where there is no schedule of this name."""
        if is_listed(name):
            return listed(name)
        raise PlanError(f"unknown schedule `{name}`", hint=f"choose one of {', '.join(self)}", key="pipeline.schedule")


SCHEDULES = Table(
    table(
        streamed.SCHEDULE,
        sequential.SCHEDULE,
        parallel_backward.SCHEDULE,
        overlapped.SCHEDULE,
        single.SCHEDULE,
        naive.SCHEDULE,
        gpipe.SCHEDULE,
        one_f_one_b.SCHEDULE,
        interleaved_1f1b.SCHEDULE,
        zero_bubble.SCHEDULE,
        zb_v.SCHEDULE,
        dualpipe_v.SCHEDULE,
        two_versions.SCHEDULE,
    )
)
"""Every schedule by its name, and those of files by their text."""


def schedules_for(*, local_losses: bool) -> tuple[Schedule, ...]:
    """The schedules of one family of methods."""
    return tuple(schedule for schedule in SCHEDULES.values() if schedule.local_losses == local_losses)


def default_schedule(*, local_losses: bool, stages: int) -> Schedule:
    """The schedule that `pipeline.schedule: auto` chooses."""
    where = "one stage" if stages == 1 else "several stages"
    return next(each for each in schedules_for(local_losses=local_losses) if where in each.default_on)
