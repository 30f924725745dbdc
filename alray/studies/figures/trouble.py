"""What a figure shows of a point: its mean, its interval, and its doubts as the shape of its mark and the text at the
pointer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alray.report.drawing import error_bar
from alray.studies.doubt import interval_of_point, is_troubled, of_point
from alray.studies.results import Results
from alray.studies.table import PointRow

TROUBLED = "a seed failed, diverged or learned next to nothing"
_SOUND = "every seed came to its end"


def measured(results: Results, row: PointRow, name: str) -> dict[str, Any]:
    """The fields of a row of a figure that say what was measured at a point: the mean over its seeds, with the 90 %
    interval and the doubts.

    Args:
        name: of the figure, as in `ROW_FIGURES`; a seed has it.
    """
    found = row.figures[name]
    assert found is not None
    bar = error_bar(interval_of_point(results, row, name))
    return {name: found.mean, "seeds": min(found.runs, row.seeds), **bar, **trouble(results, row, name)}


def trouble(results: Results, row: PointRow, name: str) -> dict[str, Any]:
    """The fields of a row of a figure that say what makes a point doubtful.

    Args:
        name: of the figure, as in `ROW_FIGURES`.
    """
    return {"mark": TROUBLED if is_troubled(row) else _SOUND, "doubts": doubts_of(results, row, name)}


def doubts_of(results: Results, row: PointRow, name: str) -> str:
    """What makes a figure of a point doubtful, in one line."""
    return "; ".join(of_point(results, row, name).reasons) or "none"


def marks_of(rows: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """The marks of a figure with these rows. Where no point is doubtful, no mark is drawn."""
    return (_SOUND, TROUBLED) if any(row.get("mark") == TROUBLED for row in rows) else ()
