"""The reports in docs/studies as the results of their studies again: the records of the trials, from tables/trials.csv.

Run folders are not committed. So these results have no curves of training, no accuracy per depth and no utilisation.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from alray.config.sections.spec import Spec
from alray.config.study.load import LoadedStudy, load_study
from alray.config.study.points import value_text
from alray.config.study.trials import Trial
from alray.core.run_folder.records import Best, Scores, Summary
from alray.studies.busy import WAS_BUSY
from alray.studies.records import Reached, Times, TrialRecord
from alray.studies.results import Results
from benchmarks.findings_page import KEPT, REPORTS, SPECS

_BUSY = re.compile(
    WAS_BUSY + r": other programs took up to (?P<most>[\d.]+) processors from .* trials? "
    r"\((?P<numbers>[\d, ]+)(?P<more> and \d+ more)?\)"
)
"""The warning on a page about trials beside other programs, which tables do not have. Where it does not name all of
them, every trial counts as one of them."""
SESSIONS = "sessions"
"""In a report of several sessions: where each of them ran."""


@dataclass(frozen=True)
class Report:
    """A report in docs/studies, with the study that made it.

    Attributes:
        folder: docs/studies/NAME.
        loaded: the study of the same name.
    """

    folder: Path
    loaded: LoadedStudy

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def page(self) -> Path:
        return self.folder / "README.md"

    @cached_property
    def kept(self) -> dict[str, Any]:
        """The study as it ran, its answers, and the version of alray."""
        values: dict[str, Any] = json.loads((self.folder / KEPT).read_text(encoding="utf-8"))
        return values

    @cached_property
    def results(self) -> Results:
        study = self.loaded.study
        records = list(self._records())
        if study.measures == "times":
            records = [record.without_accuracies for record in records]
        skipped = [each.point.values for each in self.loaded.skipped]
        return Results(study, records, self.session_folder, skipped)

    def session_folder(self, trial: int) -> Path:
        """Where the environment of a trial's session is kept, if the study has several."""
        return self.folder / SESSIONS / str(self._trials[trial].session + 1)

    def spec_of(self, record: TrialRecord) -> Spec:
        return self.loaded.spec_of(self._trials[record.number])

    @cached_property
    def _rows(self) -> list[dict[str, str]]:
        with (self.folder / "tables" / "trials.csv").open(encoding="utf-8") as rows:
            return list(csv.DictReader(rows))

    @cached_property
    def _trials(self) -> dict[int, Trial]:
        """By their numbers in the table: those of a study that has grown are in another order than in a new one."""
        alike: dict[tuple[str, ...], list[Trial]] = {}
        for trial in self.loaded.trials:
            chosen = {**trial.point.values, **trial.values, "seed": trial.seed}
            alike.setdefault(tuple(value_text(value) for value in chosen.values()), []).append(trial)
        keys = [*self.loaded.trials[0].point.values, *self.loaded.trials[0].values, "seed"]
        found = {}
        for row in self._rows:
            same = alike.get(tuple(row[key] for key in keys))  # session by session
            assert same, f"{self.name}: trial {row['trial']} is another one now"
            found[int(row["trial"])] = replace(same.pop(0), number=int(row["trial"]))
        return found

    def _records(self) -> Iterator[TrialRecord]:
        page = self.page.read_text(encoding="utf-8") if self.page.is_file() else ""
        for row in self._rows:
            trial = self._trials[int(row["trial"])]
            record = _record(trial, self.loaded.spec_of(trial), row)
            yield record.model_copy(update={"taken_processors": taken_from(page, trial.number)})


def taken_from(page: str, trial: int) -> float | None:
    """The most processors that other programs took from any trial of a report, if its page names this one among those
    that they disturbed; otherwise None."""
    busy = _BUSY.search(page)
    if busy is None or not (busy["more"] or str(trial) in busy["numbers"].split(", ")):
        return None
    return float(busy["most"])


def reports(specs: Path = SPECS, folders: Path = REPORTS) -> list[Report]:
    """Every report whose study is in `specs`, by name."""
    files = sorted(file for file in specs.glob("*.yaml") if (folders / file.stem / KEPT).is_file())
    return [report_of(file.stem, specs, folders) for file in files]


def report_of(name: str, specs: Path = SPECS, folders: Path = REPORTS) -> Report:
    """The report of this study."""
    return Report(folders / name, load_study(specs / f"{name}.yaml", _as_it_ran(folders / name)))


def _as_it_ran(folder: Path) -> list[str]:
    """Overrides for the number of seeds and sessions that a study had when its report was made."""
    ran = json.loads((folder / KEPT).read_text(encoding="utf-8"))["study"]
    return [f"repeats={ran['repeats']}", f"sessions={ran.get('sessions', 1)}"]


def _record(trial: Trial, spec: Spec, row: Mapping[str, str]) -> TrialRecord:
    def number(name: str) -> float | None:
        return float(row[name]) if row.get(name) else None

    steps, reached = number("steps"), number("steps_to_target")
    fields: dict[str, Any] = {
        "number": trial.number,
        "point": dict(trial.point.values),
        "index": trial.index,
        "values": dict(trial.values),
        "seed": trial.seed,
        "session": trial.session,
        "began": row.get("began") or None,
        "overrides": list(trial.overrides),
        "status": row["status"],
        "reason": row["reason"] or None,
        "summary": None if steps is None else _summary(spec, row, int(steps), number),
    }
    if number("training_s") is not None or number("forward_s") is not None:
        fields["times"] = Times(**{name: number(name) for name in Times.model_fields})
    if reached is not None:
        samples = int(number("samples_to_target") or 0)
        fields["reached"] = Reached(step=int(reached), samples=samples, training_s=number("seconds_to_target"))
    return TrialRecord(**fields)


def _summary(spec: Spec, row: Mapping[str, str], steps: int, number: Callable[[str], float | None]) -> Summary:
    validation, test = number("validation"), number("test")
    by_edge = round((number("bytes_sent") or 0.0) * steps)
    return Summary(
        version="0.2.0",
        name=spec.name,
        status="finished",
        run_dir="",
        seed=int(row["seed"]),
        threads=spec.resources.threads,
        method=spec.method.kind,
        schedule=spec.schedule,
        engine="ray",
        stages=spec.pipeline.stages,
        replicas=spec.replicas.count,
        partition=[spec.model.num_components or 0],
        steps=steps,
        epochs=0.0,
        samples=0,
        duration_s=0.0,
        samples_per_s=number("samples_per_s"),
        step_time_s=number("step_time_s"),
        predicted_step_time_s=number("predicted_step_time_s"),
        bubble=number("bubble"),
        predicted_bubble=None,
        metric=spec.task.measures.name,
        scores=Scores(validation=validation, test=test),
        best=None if validation is None else Best(step=steps, validation=validation, test=test),
        weights_sha256=None,
        parameters=int(number("parameters") or 0),
        peak_memory_bytes=[_whole(number("peak_memory_bytes"))],
        predicted_memory_bytes=[size] if (size := _whole(number("predicted_memory_bytes"))) is not None else [],
        bytes_sent={"all": by_edge} if by_edge else {},
        all_reduce_bytes=round((number("all_reduce_bytes") or 0.0) * steps),
        failures=[],
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
