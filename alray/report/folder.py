"""Reading a run folder: everything a report is made from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from alray.config.loading.yaml_text import read_yaml
from alray.config.sections.task import TASKS
from alray.core.errors import CheckpointError, SpecError
from alray.core.metric import Metric
from alray.core.run_folder.metrics import METRICS
from alray.core.run_folder.records import (
    EvaluationRecord,
    Record,
    Summary,
    effective,
    read,
    read_environment,
    read_summary,
)
from alray.core.run_folder.store import no_such_run_folder
from alray.core.storage.appended import was_appended
from alray.core.storage.json_file import RESTORE, read_json
from alray.core.storage.location import Location
from alray.planning.prediction.plan import Plan
from alray.planning.prediction.recorded import with_whole_plans
from alray.report.attempts import of_final_weights


@dataclass(frozen=True)
class RunFolder:
    """The contents of one run folder.

    `records` holds every record as it was written. `effective_records` leaves out the work that a failure or
    a resume discarded. `summary` is None while the run is running, and if it was killed before it could write one.
    """

    path: Location
    spec_text: str
    plan: Plan
    environment: dict[str, Any] | None
    records: list[Record]
    effective_records: list[Record]
    summary: Summary | None

    @property
    def name(self) -> str:
        """The name of the run; without a summary, the name of the folder."""
        return self.summary.name if self.summary else self.path.name

    @cached_property
    def task_metric(self) -> Metric:
        """The metric of the task, whether or not the run has evaluated. Without a summary the spec tells it. Raises
        SpecError if the spec is damaged."""
        return self.summary.measures if self.summary else _metric_of(self.spec_text, str(self.path / "spec.yaml"))

    @property
    def evaluations(self) -> list[EvaluationRecord]:
        """Those by the metric of the last one, for a resume may have been allowed to change it: values of two metrics
        cannot be compared. Without those of work that an interrupted or failed run could not save."""
        made = [record for record in of_final_weights(self.effective_records) if isinstance(record, EvaluationRecord)]
        return [record for record in made if record.metric == made[-1].metric]


def read_run(run_dir: Location) -> RunFolder:
    """Read a run folder. Raises CheckpointError if it is not one, or if one of its files is missing or damaged."""
    if not run_dir.is_dir():
        raise no_such_run_folder(run_dir)
    records_file = run_dir / "records.jsonl"
    if not was_appended(records_file):
        raise _missing(records_file)
    records = list(with_whole_plans(read(records_file), records_file))
    return RunFolder(
        path=run_dir,
        spec_text=read_spec_text(run_dir),
        plan=read_plan(run_dir),
        environment=read_environment(run_dir),
        records=records,
        effective_records=effective(iter(records)),
        summary=read_summary(run_dir),
    )


def read_spec_text(run_dir: Location) -> str:
    """The text of the spec. Raises CheckpointError if it is missing, or is no text."""
    file = _existing(run_dir / "spec.yaml")
    try:
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError("this is not UTF-8 text", file=str(file), hint=RESTORE) from error


def _metric_of(spec_text: str, file: str) -> Metric:
    spec = read_yaml(spec_text, file)[0]
    task = spec.get("task") if isinstance(spec, dict) else None
    if isinstance(task, dict):
        of_kind = TASKS.sections.get(str(task.get("kind")))
        name = task.get("metric", of_kind and of_kind.metric_name)
        if name in METRICS:
            return METRICS[name]
    raise SpecError("this spec of a run names no known task", file=file, hint=RESTORE)


def longest_silence_s(plan: Plan) -> float:
    """A run in progress writes records more often."""
    return max(60.0, plan.deadline_s)


def read_plan(run_dir: Location) -> Plan:
    """The last plan of a run. Raises CheckpointError if it is missing or damaged."""
    return read_json(_existing(run_dir / "plan.json"), Plan)


def _existing(path: Location) -> Location:
    if not path.is_file():
        raise _missing(path)
    return path


def _missing(path: Location) -> CheckpointError:
    return CheckpointError(
        f"the run folder has no {path.name}",
        file=str(path),
        hint="give a folder that `alray run` wrote; a report needs this file",
    )
