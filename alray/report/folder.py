"""A run folder, read: everything the report is made from."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from alray.errors import CheckpointError
from alray.plan.plan import Plan
from alray.records import Record, Summary, effective, read

T = TypeVar("T")


@dataclass(frozen=True)
class RunFolder:
    """The contents of one run folder.

    `records` are as written; `kept` are those that no failure or resume made void.
    `summary` is None while a run goes on or where it was killed before it could write one.
    """

    path: Path
    spec_text: str
    plan: Plan
    environment: dict[str, Any] | None
    records: list[Record]
    kept: list[Record]
    summary: Summary | None

    @property
    def name(self) -> str:
        """The run's name; the folder's where no summary tells it."""
        return self.summary.name if self.summary else self.path.name


def read_run(run_dir: Path) -> RunFolder:
    """Read a run folder. `CheckpointError` where it is none, or one of its files is missing or damaged."""
    if not run_dir.is_dir():
        raise CheckpointError(
            "no such run folder", file=str(run_dir), mend="give the folder a run wrote, runs/<name>-<time>"
        )
    records = list(read(_existing(run_dir / "records.jsonl")))
    return RunFolder(
        path=run_dir,
        spec_text=_existing(run_dir / "spec.yaml").read_text(encoding="utf-8"),
        plan=_parsed(_existing(run_dir / "plan.json"), Plan.from_json),
        environment=_optional(run_dir / "environment.json", dict),
        records=records,
        kept=effective(iter(records)),
        summary=_optional(run_dir / "summary.json", Summary.model_validate),
    )


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise CheckpointError(
            f"the run folder has no {path.name}",
            file=str(path),
            mend="give a folder written by alray run; without this file there is nothing to report",
        )
    return path


def _optional(path: Path, build: Callable[[Any], T]) -> T | None:
    return _parsed(path, build) if path.is_file() else None


def _parsed(path: Path, build: Callable[[Any], T]) -> T:
    """The JSON of a file as a typed value; damage is told with the file's name and, where known, its line."""
    mend = "the file was changed by something else than alray; restore it"
    try:
        return build(json.loads(path.read_text(encoding="utf-8")))
    except json.JSONDecodeError as error:
        raise CheckpointError(f"not JSON: {error.msg}", file=str(path), line=error.lineno, mend=mend) from error
    except KeyError as error:
        raise CheckpointError(f"not what alray writes: {error} is missing", file=str(path), mend=mend) from error
    except (ValidationError, TypeError, ValueError) as error:
        raise CheckpointError(f"not what alray writes: {error}", file=str(path), mend=mend) from error
