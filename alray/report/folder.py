"""Reading a run folder: everything a report is made from."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from alray.errors import CheckpointError
from alray.plan.plan import Plan
from alray.records import Record, Summary, effective, read
from alray.storage.appended import was_appended
from alray.storage.location import Location
from alray.store import no_such_run_folder

T = TypeVar("T")

_DAMAGED = "another program changed this file; restore it"


@dataclass(frozen=True)
class RunFolder:
    """The contents of one run folder.

    `records` holds every record as it was written. `kept` leaves out the work that a failure or a resume discarded.
    `summary` is None while the run is still going on, and if it was killed before it could write a summary.
    """

    path: Location
    spec_text: str
    plan: Plan
    environment: dict[str, Any] | None
    records: list[Record]
    kept: list[Record]
    summary: Summary | None

    @property
    def name(self) -> str:
        """The name of the run; without a summary, the name of the folder."""
        return self.summary.name if self.summary else self.path.name


def read_run(run_dir: Location) -> RunFolder:
    """Read a run folder. Raises CheckpointError if it is not one, or if one of its files is missing or damaged."""
    if not run_dir.is_dir():
        raise no_such_run_folder(run_dir)
    records_file = run_dir / "records.jsonl"
    if not was_appended(records_file):
        raise _missing(records_file)
    records = list(read(records_file))
    return RunFolder(
        path=run_dir,
        spec_text=_existing(run_dir / "spec.yaml").read_text(encoding="utf-8"),
        plan=read_plan(run_dir),
        environment=read_environment(run_dir),
        records=records,
        kept=effective(iter(records)),
        summary=read_summary(run_dir),
    )


def longest_silence_s(plan: Plan) -> float:
    """A run that goes on writes records more often."""
    return max(60.0, plan.deadline_s)


def read_plan(run_dir: Location) -> Plan:
    """The last plan of a run. Raises CheckpointError if it is missing or damaged."""
    return _parsed(_existing(run_dir / "plan.json"), Plan.from_json)


def read_summary(run_dir: Location) -> Summary | None:
    """The summary of a run; None while it goes on, and if it was killed. Raises CheckpointError if it is damaged."""
    return _optional(run_dir / "summary.json", Summary.model_validate)


def read_environment(run_dir: Location) -> dict[str, Any] | None:
    """What `environment.json` holds; None if there is none. Raises CheckpointError if it is damaged."""
    return _optional(run_dir / "environment.json", dict)


def _existing(path: Location) -> Location:
    if not path.is_file():
        raise _missing(path)
    return path


def _missing(path: Location) -> CheckpointError:
    return CheckpointError(
        f"the run folder has no {path.name}",
        file=str(path),
        mend="give a folder that `alray run` wrote; a report needs this file",
    )


def _optional(path: Location, build: Callable[[Any], T]) -> T | None:
    return _parsed(path, build) if path.is_file() else None


def _parsed(path: Location, build: Callable[[Any], T]) -> T:
    """The JSON of a file as a typed value. Raises CheckpointError with the file and, if known, the line."""
    try:
        return build(json.loads(path.read_text(encoding="utf-8")))
    except json.JSONDecodeError as error:
        raise CheckpointError(f"not JSON: {error.msg}", file=str(path), line=error.lineno, mend=_DAMAGED) from error
    except KeyError as error:
        raise CheckpointError(f"not written by alray: {error} is missing", file=str(path), mend=_DAMAGED) from error
    except (ValidationError, TypeError, ValueError) as error:
        raise CheckpointError(f"not written by alray: {error}", file=str(path), mend=_DAMAGED) from error
