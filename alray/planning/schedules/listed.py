"""Schedules that a file lists: one row for each stage, and in it its computations in order.

    0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1
    1F0,2F0,1F1,2F1,,2B0,1B0,2B1,1B1

A cell such as `3B1` is a virtual stage, a kind and a micro-batch, all counted from 0. This is the compute-only form in
which torch.distributed.pipelining writes and reads schedules. The kinds are F, B, and for a backward in two parts I and
W: the gradient of the input, and those of the weights, which alray's lists call G, because their W is a barrier.
Both letters are read. A cell `(0F1;3B0)OVERLAP_F_B` stands for its parts one after another. Cells may be empty, or
quoted. Messages and updates are not listed: they follow from the computations.

Stages, micro-batches, virtual stages and their placement are those of the file. From here on a file's schedule is known
by a text: the name of the file in the first line, and its rows in the others.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import PurePath
from typing import cast

from alray.core.counting import counted
from alray.core.errors import PlanError
from alray.planning.schedules.actions import Action, ActionKind
from alray.planning.schedules.micro_batches import any_number
from alray.planning.schedules.pipeline import with_messages
from alray.planning.schedules.placement import PLACES, Place
from alray.planning.schedules.schedule import Computation, Layout, Schedule

ENDING = ".csv"
LARGEST_BYTES = 500_000
"""Size of the largest file. A spec that holds it must still be read as a spec."""

_CELL = re.compile(r"(0|[1-9]\d{0,6})([FBIGW])(0|[1-9]\d{0,6})")
_TOGETHER = re.compile(r"\((.*)\)OVERLAP_F_B")
_HINT = "write virtual stage, kind and micro-batch, such as `2F0`, and commas between them; the kinds are F, B, I and W"
Row = list[Computation]


def is_listed(schedule: object) -> bool:
    """Whether a value of `pipeline.schedule` is a file, or the text that stands for one."""
    return isinstance(schedule, str) and (schedule.endswith(ENDING) or "\n" in schedule)


def text_of(name: str, content: str) -> str:
    """The text that stands for a file.

    Args:
        name: of the file, without its folder.
        content: of the file.
    """
    rows = [",".join(_cells(row)) for row in content.strip().splitlines()]
    return "\n".join([PurePath(name).name, *rows])


@cache
def schedule_of(text: str) -> Schedule:
    """The schedule that a text of `text_of` stands for. Raises PlanError, with row and cell, where it is none."""
    name, *lines = text.split("\n")
    rows = [_row(name, number, line) for number, line in enumerate(lines, start=1)]
    if len(rows) < 2:
        raise _fault(
            f"{name} has {counted(len(rows), 'row')}",
            "give a row for each stage; on one stage every schedule goes through the micro-batches in turn",
        )
    layout, virtual_stages, place = _layout(name, rows)

    def order(stage: int, stages: int, micro_batches: int, virtual_stages: int) -> Row:
        return rows[stage]

    actions = with_messages(order)
    lists = [actions(stage, len(rows), 0, layout.micro_batches, virtual_stages) for stage in range(len(rows))]
    _require_end(name, lists)
    return Schedule(
        name=name,
        methods="backpropagation",
        actions=actions,
        demand=any_number,
        fewest_virtual_stages=virtual_stages,
        most_virtual_stages=virtual_stages,
        place=place,
        only_layout=layout,
        in_order=False,
    )


def _cells(row: str) -> Iterator[str]:
    """Those that are not empty, without the quotation marks that a spreadsheet may write around them."""
    return (cell for cell in (each.strip().strip('"').strip() for each in row.split(",")) if cell)


def _fault(message: str, hint: str) -> PlanError:
    return PlanError(message, hint=hint, key="pipeline.schedule")


def _row(name: str, number: int, line: str) -> Row:
    """The computations of a row. Raises PlanError for a cell that is none."""
    row: Row = []
    for place, cell in enumerate(_cells(line), start=1):
        together = _TOGETHER.fullmatch(cell)
        for part in together[1].split(";") if together else [cell]:
            match = _CELL.fullmatch(part.strip())
            if match is None:
                raise _fault(f"{name}, row {number}, cell {place}: `{cell}` is no computation", _HINT)
            kind = "G" if match[2] == "W" else match[2]
            row.append((cast(ActionKind, kind), int(match[1]), int(match[3])))
    if not row:
        raise _fault(f"{name}, row {number} has no computation", "give a row for each stage, and none besides")
    return row


def _layout(name: str, rows: Sequence[Row]) -> tuple[Layout, int, Place]:
    """Stages and micro-batches, virtual stages on each stage, and their placement.

    Raises PlanError where a virtual stage or a computation is missing, comes too early or twice, and where virtual
    stages lie on stages that no placement gives them.
    """
    holders: dict[int, int] = {}
    for stage, row in enumerate(rows):
        for _, own, _ in row:
            if holders.setdefault(own, stage) != stage:
                raise _fault(
                    f"{name}: virtual stage {own} is in rows {holders[own] + 1} and {stage + 1}",
                    "list all of its computations in one row",
                )
    stages, last = len(rows), max(holders)
    missing = min(set(range(last + 1)) - set(holders), default=None)
    if missing is not None:
        raise _fault(
            f"{name}: virtual stage {missing} is missing, but there is a virtual stage {last}",
            "number them from 0 without a gap",
        )
    each, left = divmod(last + 1, stages)
    if left:
        raise _fault(f"{name}: {last + 1} virtual stages on {stages} stages", "give every stage as many of them")
    for place in PLACES:
        if all(place(own, stages) == stage for own, stage in holders.items()):
            break
    else:
        shown = ", ".join(str(holders[own] + 1) for own in range(last + 1))
        raise _fault(
            f"{name}: virtual stages 0 to {last} are in rows {shown}, which is neither round-robin nor V-shaped",
            f"lay them in turns (1 to {stages}, and from 1 again) or as a V (1 to {stages}, and back down to 1)",
        )
    micro_batches = 1 + max(part for row in rows for _, _, part in row)
    done: defaultdict[tuple[int, int], str] = defaultdict(str)
    for kind, own, part in (computation for row in rows for computation in row):
        done[own, part] += "W" if kind == "G" else kind
    for own, part in product(sorted(holders), range(micro_batches)):
        if done[own, part] not in ("FB", "FIW"):
            there = ", ".join(f"`{own}{letter}{part}`" for letter in done[own, part])
            raise _fault(
                f"{name}, row {holders[own] + 1}: micro-batch {part} of virtual stage {own} has {there or 'nothing'}",
                "every virtual stage has F and then B of each micro-batch, or F, I and then W",
            )
    return Layout(stages, micro_batches), each, place


def _require_end(name: str, lists: Sequence[Sequence[Action]]) -> None:
    """Raises PlanError where stages with these lists wait for each other for ever, however much room edges have."""
    left, sent = [deque(own) for own in lists], set[tuple[int, int, bool]]()
    proceeds = True
    while proceeds:
        proceeds = False
        for own in left:
            while own and (own[0].kind != "R" or (own[0].stage, own[0].number, own[0].down) in sent):
                action = own.popleft()
                if action.kind == "S":
                    sent.add((action.peer, action.number, action.down))
                proceeds = True
    # Each waits for a message, and what needs it comes next.
    if early := [(stage, own[1]) for stage, own in enumerate(left) if own]:
        waits = (f"stage {stage} cannot do `{action.stage}{action.kind}{action.number}`" for stage, action in early)
        raise _fault(
            f"{name}: the stages wait for each other for ever: {', '.join(waits)}", "move one of these computations"
        )
