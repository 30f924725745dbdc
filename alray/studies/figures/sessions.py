"""How far the times of a study differ from session to session, and within one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from alray.report.figure import Exhibit
from alray.report.spread import LEAST_FOR_SPREAD
from alray.report.table import CellValue, Column, Numbers
from alray.report.text import NOT_MEASURED, share
from alray.studies.busy import is_disturbed
from alray.studies.records import TrialRecord
from alray.studies.results import Results
from alray.studies.table import value_of


def sessions(results: Results) -> Exhibit | None:
    """The sessions of the study: each is a start with new processes, which runs all points in turns, forwards and
    backwards. A machine was quiet if other programs took no more than a quarter of a processor from any trial. The time
    is the step time, divided by the mean of the same point over all sessions: the geometric mean over the points. The
    spreads are standard deviations over all points: between sessions of the mean of a session, and within a session of
    its trials."""
    if results.study.sessions < 2:
        return None
    found = {number: [each for each in results.records if each.session == number] for number in _numbers(results)}
    logs = _logs(results)
    means = {point: fmean(map(fmean, of_sessions.values())) for point, of_sessions in logs.items()}
    rows: list[tuple[CellValue, ...]] = []
    for number, records in found.items():
        away = [fmean(each[number]) - means[point] for point, each in logs.items() if number in each]
        time = math.exp(fmean(away)) if away else None
        rows.append(
            (number + 1, _began(results, records), len(records), _taken(records), _machine(results, records), time)
        )
    tables = {"sessions": Numbers(_COLUMNS, tuple(rows)).texts}
    several = [str(session + 1) for session in results.sessions_of_several_starts(results.records)]
    began = []
    if several:
        sessions = f"Session {several[0]}" if len(several) == 1 else f"Sessions {', '.join(several)}"
        began.append(
            f"{sessions} began at several or unknown times, so points are not compared under the same conditions."
        )
    return Exhibit("Sessions", (), (*_spreads(logs), *began), tables=tables)


def _numbers(results: Results) -> list[int]:
    return sorted({record.session for record in results.records})


def _logs(results: Results) -> dict[int, dict[int, list[float]]]:
    """The logarithms of step times, by point and session."""
    found: dict[int, dict[int, list[float]]] = {}
    for at, row in enumerate(results.rows):
        for record in row.best:
            if (step_s := value_of(record, "step_time_s")) is not None:
                found.setdefault(at, {}).setdefault(record.session, []).append(math.log(step_s))
    return found


def _spreads(logs: dict[int, dict[int, list[float]]]) -> list[str]:
    """One sentence, once three sessions show a spread."""
    between = [list(map(fmean, each.values())) for each in logs.values() if len(each) >= LEAST_FOR_SPREAD]
    within = [values for each in logs.values() for values in each.values() if len(values) > 1]
    if not between or not within:
        return []
    return [
        f"From session to session the step time of a point differs by {share(_pooled(between))}, within a session by "
        f"{share(_pooled(within))} (standard deviations)."
    ]


def _pooled(groups: Sequence[Sequence[float]]) -> float:
    squares = sum((len(each) - 1) * stdev(each) ** 2 for each in groups)
    return math.sqrt(squares / sum(len(each) - 1 for each in groups))


def _began(results: Results, records: Sequence[TrialRecord]) -> str:
    """When the first trial began, as its run folder says."""
    dates = [date for record in records if (date := results.environment(record).get("date"))]
    return min(dates)[:16].replace("T", " ") if dates else NOT_MEASURED


def _taken(records: Sequence[TrialRecord]) -> float | None:
    return max((each.taken_processors for each in records if each.taken_processors is not None), default=None)


def _machine(results: Results, records: Sequence[TrialRecord]) -> str:
    if results.machines_of(records):
        return "several"
    if any(each.taken_processors is None for each in records):
        return "not known"
    return "busy" if any(map(is_disturbed, records)) else "quiet"


_COLUMNS = (
    Column("session", "session", kind="setting"),
    Column("began", "began"),
    Column("trials", "trials"),
    Column(
        "taken_processors",
        "processors that others took",
        lambda value: NOT_MEASURED if value is None else f"{value:.2f}",
    ),
    Column("machine", "machine"),
    Column("time", "time", lambda value: NOT_MEASURED if value is None else f"{value:.3f}"),
)
