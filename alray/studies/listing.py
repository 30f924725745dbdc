"""The runs and studies of a folder, a row for each, from a few small files: no records are read."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeVar

from alray.config.loading.load import read_document
from alray.config.sections.method import METHODS
from alray.core.counting import counted
from alray.core.errors import AlrayError, RequestError
from alray.core.metric import ACCURACY, Metric
from alray.core.run_folder.metrics import METRICS
from alray.core.run_folder.records import Scores, read_environment, read_summary
from alray.core.run_folder.store import never_began
from alray.core.storage.location import Location
from alray.report.folder import longest_silence_s, read_plan
from alray.report.table import Table
from alray.report.text import score, seconds
from alray.studies.folder import STUDY, TRIALS, StudyFolder

L = TypeVar("L", bound=Location)

ListedState = Literal["finished", "interrupted", "failed", "running", "killed", "unfinished", "damaged"]
"""`running`: there is no summary yet, and a file was written a short time ago; `killed`: it was not, for
longer than a stage may be silent. On object storage the time is not asked for: `unfinished` is one of the two."""

_DEFAULT = ("runs", "studies")


@dataclass(frozen=True)
class Listed:
    """One run or study. None: it has none, or it is not known yet."""

    folder: str
    kind: Literal["run", "study"]
    state: ListedState
    name: str | None = None
    method: str | None = None
    schedule: str | None = None
    stages: int | None = None
    replicas: int | None = None
    steps: int | None = None
    metric: str | None = None
    """Of the task, such as `accuracy`."""
    validation: float | None = None
    """The metric of the final weights."""
    test: float | None = None
    step_time_s: float | None = None
    trials: int | None = None
    """The number of trials of a study."""
    ended: int | None = None
    """Trials that have ended."""
    date: str | None = None
    """When it began, with the time zone."""
    reason: str | None = None
    """Why it is `damaged`."""

    @property
    def measures(self) -> Metric:
        return METRICS[self.metric or ACCURACY.name]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def rows_in(folders: Sequence[Location]) -> list[Listed]:
    """Each run and study in these folders once. A folder that is a run itself counts as one, and a study as its trials.

    Args:
        folders: none: `runs` and `studies` of the current folder.

    Raises:
        RequestError: if a folder is not there.
    """
    found: dict[Location, None] = {}
    for folder in folders or [Path(name) for name in _DEFAULT if Path(name).is_dir()]:
        if not folder.is_dir():
            fault = "this is a file, not a folder" if folder.exists() else "there is no such folder"
            raise RequestError(fault, file=str(folder), hint="name a folder that holds run folders")
        within = folder / "trials" if (folder / TRIALS).is_file() else folder
        found |= dict.fromkeys(_candidates(within))
    return [row for each in found if (row := _row(each)) is not None]


def chosen(rows: Iterable[Listed], filters: Sequence[str]) -> list[Listed]:
    """The rows that suit all filters, such as `method=backpropagation`, `state=finished` or `name=mlp*`.

    Raises RequestError for a filter that is none.
    """
    wanted = []
    for text in filters:
        key, equals, value = text.partition("=")
        if not equals or key not in _FILTERS:
            raise RequestError(
                f"`{text}` is not a filter", key="FILTER", hint=f"write one of {', '.join(_FILTERS)}, `=` and a value"
            )
        wanted.append((key, value))
    return [row for row in rows if all(_suits(getattr(row, key), value) for key, value in wanted)]


def ordered(rows: Iterable[Listed], by: str) -> list[Listed]:
    """The rows in order: the latest, the most accurate, the fastest first, or by the alphabet. What has no value, or
    one that is not a number, comes last. Raises RequestError if there is no such key."""
    if by not in _ORDERS:
        raise RequestError(f"`{by}` is not a column", key="--sort", hint=f"choose one of {', '.join(_ORDERS)}")
    known = [row for row in rows if not _is_unknown(getattr(row, by))]
    known.sort(key=lambda row: (_rank(row, by), row.folder), reverse=by in _LARGEST_FIRST)
    return known + [row for row in rows if _is_unknown(getattr(row, by))]


def table_of(rows: Iterable[Listed]) -> Table:
    """The rows as texts. Methods have their short names; stages are `stages x replicas` where there are several."""
    head = ("folder", "method", "schedule", "stages", "state", "validation", "test", "step", "started")
    return Table(head, tuple(_cells(row) for row in rows))


_FILTERS = ("kind", "name", "method", "schedule", "stages", "replicas", "state")
_LARGEST_FIRST = ("date", "validation", "test", "steps")
_ORDERS = (*_LARGEST_FIRST, "step_time_s", "folder", "name", "method", "schedule", "stages", "state")


def _is_unknown(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _rank(row: Listed, by: str) -> Any:
    """The value in a column by which rows are ordered: of a metric whose lowest value is the best, its negative."""
    value = getattr(row, by)
    return -value if by in ("validation", "test") and row.measures.lowest else value


def _shown(row: Listed, value: float | None) -> str:
    """A value with its metric, unless that is the accuracy."""
    return score(value) if value is None or row.measures == ACCURACY else f"{row.measures.title} {score(value)}"


def _suits(value: Any, wanted: str) -> bool:
    return value is not None and fnmatchcase(str(value), wanted)


def _cells(row: Listed) -> tuple[str, ...]:
    short = METHODS.sections[row.method].abbreviation if row.method in METHODS.sections else ""
    stages = "" if row.stages is None else str(row.stages)
    if row.replicas is not None and row.replicas > 1:
        stages += f" x {row.replicas}"
    if row.kind == "study":
        return row.folder, "study", "", "", f"{row.state} {row.ended} of {row.trials}", "", "", "", _day(row.date)
    return (
        row.folder,
        short or row.method or "",
        row.schedule or "",
        stages,
        row.state,
        _shown(row, row.validation),
        _shown(row, row.test),
        seconds(row.step_time_s),
        _day(row.date),
    )


def _day(date: str | None) -> str:
    return "" if date is None else date[:16].replace("T", " ")


def _candidates(folder: Location) -> Iterator[Location]:
    """The folder itself if it is a run, else the folders in it."""
    if (folder / "spec.yaml").is_file():
        yield folder
    elif isinstance(folder, Path):
        yield from sorted(each for each in folder.iterdir() if each.is_dir())
    else:
        yield from folder.glob("*")


def _row(folder: Location) -> Listed | None:
    """The row of a folder; None if it is neither a run nor a study."""
    if (folder / TRIALS).is_file() and isinstance(folder, Path):
        return _guarded(folder, "study", _study)
    if any((folder / name).is_file() for name in ("spec.yaml", "summary.json", "records.jsonl")):
        return _guarded(folder, "run", _run)
    return None


def _guarded(folder: L, kind: Literal["run", "study"], read: Callable[[L], Listed]) -> Listed:
    try:
        return read(folder)
    except AlrayError as error:
        return Listed(str(folder), kind, "damaged", reason=error.problems[0].message)


def _run(folder: Location) -> Listed:
    name, summary = read_document(folder / "spec.yaml").value.get("name"), read_summary(folder)
    planned = summary or (read_plan(folder) if (folder / "plan.json").is_file() else None)
    scores = Scores() if summary is None else summary.scores
    return Listed(
        folder=str(folder),
        kind="run",
        state=_state(folder, None if summary is None else summary.status),
        name=name if isinstance(name, str) else None,
        **{key: getattr(planned, key, None) for key in ("method", "schedule", "stages", "replicas")},
        **{key: getattr(summary, key, None) for key in ("steps", "metric", "step_time_s")},
        validation=scores.validation,
        test=scores.test,
        date=_date(folder),
    )


def _state(folder: Location, ended: ListedState | None) -> ListedState:
    """
    Args:
        ended: the status of the summary; None: there is none.
    """
    if ended is not None:
        return ended
    if isinstance(folder, Path) and never_began(folder):
        return "failed"
    records = folder / "records.jsonl"
    if not isinstance(folder, Path) or not isinstance(records, Path) or not records.is_file():
        return "unfinished"
    written_s = records.stat().st_mtime
    return "running" if time.time() - written_s < longest_silence_s(read_plan(folder)) else "killed"


def _date(folder: Location) -> str | None:
    """When the run began, or went on after an end."""
    return (read_environment(folder) or {}).get("date")


def _study(folder: Path) -> Listed:
    of = StudyFolder.open(folder)
    records, trials = of.records(), len(of.begun.trials)
    begun_s = (folder / STUDY).stat().st_mtime
    failed = bool(records) and all(record.status == "failed" for record in records)
    return Listed(
        folder=str(folder),
        kind="study",
        state="unfinished" if len(records) < trials else "failed" if failed else "finished",
        name=of.study.study,
        trials=trials,
        ended=len(records),
        date=datetime.fromtimestamp(begun_s, UTC).astimezone().isoformat(timespec="seconds"),
    )


def notes_on(rows: Sequence[Listed]) -> list[str]:
    """How many there are, and why some are damaged: a line each."""
    lines = [f"{row.folder} is damaged: {row.reason}" for row in rows if row.state == "damaged"]
    runs = sum(row.kind == "run" for row in rows)
    studies = [f", {len(rows) - runs} studies"] if len(rows) - runs > 1 else [", 1 study"] if len(rows) > runs else []
    return [*lines, "".join([counted(runs, "run"), *studies])]
