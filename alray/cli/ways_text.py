"""The answers of `alray plan` about ways to train: all on some devices, and which is the fastest where."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from alray.api.console.layout import Page
from alray.core.counting import counted
from alray.planning.prediction.basis import basis_of
from alray.report.table import Table
from alray.report.text import left_out, seconds, seconds_range, share, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alray.report.crossover_page import CrossoverReport
    from alray.runtime.planner.fitting import Fitting


def fitting_text(found: Fitting, *, command: Sequence[str], page: Page) -> str:
    """A row for each schedule on each number of stages, what fits first; then how to run the best one.

    Args:
        command: that runs the spec.
    """
    from alray.planning.schedules.table import SCHEDULES

    replicas = f", {counted(found.replicas, 'replica')}" if found.replicas > 1 else ""
    sizes = f"{len(found.devices)} x {size(found.devices[0])}" if found.devices else "this machine"
    where = sizes if found.machines is None else found.machines
    said = [basis_of(found.costs)["times"]] if found.machines is None else list(found.basis.values())
    without = {each.schedule for each in found.refused} - {row.schedule for row in found.rows}
    reasons = (
        (each.schedule + (f" in {each.parts}" if each.parts else ""), str(each.stages), each.reason)
        for each in found.refused
    )
    refused = left_out(reasons, "{} on {} stages")
    head = [
        page.heading(f"{found.name}: {found.method}, on {where}{replicas}{_without(len(without))}"),
        *map(page.sentence, [*refused, *said, *([found.assumed] if found.assumed else [])]),
    ]
    notes = [
        f"{schedule} trains other weights: its gradients are computed with those from before the last update"
        for schedule in dict.fromkeys(row.schedule for row in found.rows if row.gradient_delay)
    ]
    if found.devices:
        notes.append("step: with a device for each stage; `alray plan` counts the processors of this machine")
    needs = "the data need" if found.machines else "libraries and the data need"
    notes.append(f"left: of what each stage may hold, besides its tensors; {needs} some of it")
    if not found.rows:
        notes.append("no schedule can run, for the reasons above")
    elif found.best is None:
        pipelines = any(row.stages > 1 and SCHEDULES[row.schedule].is_pipeline for row in found.rows)
        again = pipelines and not found.recomputes
        also = ", or pipeline.activation_checkpointing, which is not searched" if again else ""
        notes.append(f"nothing fits: use larger or more devices, or smaller components or mini-batches{also}")
    else:
        notes.append(f"run it with  {shlex.join([*command, *found.overrides(found.best)])}")
    return "\n\n".join(["\n".join(head), page.table(_table(found)), "\n".join(map(page.sentence, notes))])


def _table(found: Fitting) -> Table:
    ranged = ("range",) if any(row.predicted_step_range_s for row in found.rows) else ()
    rows = tuple(
        (
            "fits" if row.fits else "no",
            row.schedule,
            str(row.stages),
            str(row.micro_batches),
            ", ".join(map(str, row.partition)),
            seconds(row.predicted_step_time_s),
            *((seconds_range(row.predicted_step_range_s),) if ranged else ()),
            share(row.predicted_bubble),
            ", ".join(f"{'-' if left < 0 else ''}{size(abs(left))}" for left in row.left_bytes),
        )
        for row in found.rows
    )
    head = ("", "schedule", "stages", "micro batches", "cut", "step", *ranged, "bubble", "left")
    return Table(head, rows)


def crossover_text(made: CrossoverReport, *, command: Sequence[str], page: Page) -> str:
    """What was left out, what is fastest at each place, and how to run it.

    Args:
        command: that runs the spec.
    """
    from alray.report.crossover import cells, findings, overrides_of, refused, winners_table

    found = made.found
    head = [
        page.heading(f"{found.name}: the fastest way to train{_without(len(found.refused))}"),
        *map(page.sentence, [*refused(found), found.basis["times"]]),
    ]
    notes = findings(found)
    for at in cells(found):
        if at.link == found.axes.links[0] and at.devices == found.axes.devices[-1] and at.best is not None:
            words = shlex.join([*command, *overrides_of(found, at.best)])
            notes.append(f"to train as on {counted(at.devices, 'device')}, {at.link}:  {words}")
    return "\n\n".join(["\n".join(head), page.table(winners_table(found)), "\n".join(map(page.sentence, notes))]) + "\n"


def _without(schedules: int) -> str:
    return f", without {counted(schedules, 'schedule')}" if schedules else ""
