"""The part of the page with the single step: what one mini-batch spends on what, predicted beside measured."""

from __future__ import annotations

from alray.report.folder import RunFolder
from alray.report.single_step import Parts, single_step
from alray.report.text import milliseconds, table

HEAD = ("data", "forward", "backward", "update", "communication", "send wait", "receive wait", "idle", "step")
"""Columns of a table of `Parts`, in the order of `cells`; the three behind communication are what it is made of."""


def cells(parts: Parts | None) -> list[str]:
    """Milliseconds of each part, and dashes where nothing was measured."""
    if parts is None:
        return [milliseconds(None)] * len(HEAD)
    values = (
        *(parts.data_s, parts.forward_s, parts.backward_s, parts.update_s, parts.communication_s),
        *(parts.send_wait_s, parts.receive_wait_s, parts.idle_s, parts.step_s),
    )
    return [milliseconds(value) for value in values]


def single_step_section(run: RunFolder) -> str:
    """A row for each stage and for the step, predicted, and the measured one beneath it."""
    rows = []
    for row in single_step(run.kept, run.plan).rows:
        rows.append([row.label, "predicted", *cells(row.predicted)])
        rows.append(["", "measured", *cells(row.measured)])
    return (
        "<h2>The single step</h2>"
        f"{table(['', '', *HEAD], rows, long=(0, 1))}"
        '<p class="note">Milliseconds of one mini-batch, means after warm-up. Communication is send wait, receive wait '
        "and idle together: all that is no computing of the stage&#39;s own. The step is the mean of the stages, so "
        "that its parts add up to the time from one mini-batch to the next.</p>"
    )
