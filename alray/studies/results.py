"""The results of a study: its rows and trials as figures need them, by axis and series."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from alray.config.loading.load import read_document
from alray.config.study.points import label_of, points_of, series_label
from alray.config.study.section import BATCH_SIZE, Study
from alray.core.counting import counted
from alray.core.metric import Metric
from alray.core.run_folder.records import Record, effective, read, read_environment
from alray.report.environments import OF_TIMES, differing
from alray.report.spread import LEAST_FOR_SPREAD
from alray.studies.records import TrialRecord, metric_of
from alray.studies.scaling import Scaling, scaling_of, with_gains
from alray.studies.table import PointRow, by_settings, rows_of

_HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Results:
    """A study and the records of its trials that have ended.

    Attributes:
        trial_dir: the run folder of a trial, by its number.
        skipped: the values of points that the study has no trials of.
    """

    study: Study
    records: Sequence[TrialRecord]
    trial_dir: Callable[[int], Path]
    skipped: Sequence[Mapping[str, Any]] = ()

    @cached_property
    def rows(self) -> list[PointRow]:
        """One row for each point, in the order of the trials."""
        return with_gains(self._measured, self.scaling)

    @cached_property
    def scaling(self) -> Scaling | None:
        return scaling_of(self._measured)

    @cached_property
    def _measured(self) -> list[PointRow]:
        """The rows without speed-up and efficiency."""
        return rows_of(self.records, target=self.study.target is not None)

    @cached_property
    def metric(self) -> Metric:
        """The metric of the trials' task."""
        return metric_of(self.records)

    @cached_property
    def unmeasured(self) -> list[Mapping[str, Any]]:
        """The values of the points none of whose trials has ended."""
        known = {
            json.dumps(dict(point), sort_keys=True) for point in (*(row.point for row in self.rows), *self.skipped)
        }
        values = [each.values for each in points_of(self.study)]
        return [each for each in values if json.dumps(dict(each), sort_keys=True) not in known]

    @property
    def axes(self) -> list[str]:
        """The axes with more than one value."""
        return [axis for axis in self.study.axes if len(self.values(axis)) > 1]

    @property
    def is_of_batch_sizes(self) -> bool:
        """Whether the study asks how many mini-batches of each size a target takes."""
        return BATCH_SIZE in self.axes and self.study.target is not None

    @property
    def compares_ends(self) -> bool:
        """Whether the study compares how runs end over any axes: neither batch sizes by their way to a target, nor
        numbers of devices."""
        return bool(self.axes) and not self.is_of_batch_sizes and self.scaling is None

    def values(self, axis: str) -> list[Any]:
        """The values of an axis that have records, in the order of the study."""
        found = {json.dumps(row.point[axis]): row.point[axis] for row in self.rows if axis in row.point}
        return list(found.values())

    def is_numeric(self, axis: str) -> bool:
        """Whether every value of an axis is a number."""
        return all(isinstance(each, int | float) and not isinstance(each, bool) for each in self.values(axis))

    def along(self, axis: str) -> dict[str, list[PointRow]]:
        """The points by the values of their other axes: series -> rows, in the order of this axis if it is numeric."""
        found: dict[str, list[PointRow]] = {}
        for row in self.rows:
            found.setdefault(series_label(row.point, (axis,)), []).append(row)
        if self.is_numeric(axis):
            for rows in found.values():
                rows.sort(key=lambda row: float(row.point[axis]))
        return found

    def records_of(self, record: TrialRecord) -> list[Record]:
        """The records of a trial's run, without lost work; none where its folder was deleted."""
        path = self.trial_dir(record.number) / "records.jsonl"
        return effective(read(path)) if path.is_file() else []

    def environment(self, record: TrialRecord) -> dict[str, Any]:
        """Where a trial ran; empty if that is not known."""
        if record.number not in self._environments:
            self._environments[record.number] = read_environment(self.trial_dir(record.number)) or {}
        return self._environments[record.number]

    @cached_property
    def days(self) -> dict[int, int]:
        """Session -> the first session of the same day. Sessions that began on one day, or within an hour, measure a
        machine in one state: they count as one. Those whose start is not known count with the first."""
        in_order = sorted(self._starts, key=self._starts.__getitem__)
        days = dict.fromkeys((record.session for record in self.records), in_order[0] if in_order else 0)
        for before, after in pairwise(in_order):
            first, then = self._starts[before], self._starts[after]
            near = then - first < _HOUR or then.date() == first.date()
            days[after] = days[before] if near else after
        return days

    @cached_property
    def _starts(self) -> dict[int, datetime]:
        """Session -> when it began first, of the sessions of which this is known."""
        found: dict[int, datetime] = {}
        for record in self.records:
            if record.began is not None:
                began = datetime.fromisoformat(record.began)
                found[record.session] = min(began, found.get(record.session, began))
        return found

    @property
    def unit_of_times(self) -> str:
        """What intervals of times are over: a `day` from three days on; else a `start`, or a `run` if there was one
        session."""
        if len(set(self.days.values())) >= LEAST_FOR_SPREAD:
            return "day"
        return "start" if self.study.sessions > 1 else "run"

    def when(self, count: int) -> str:
        """So many units of times, and from when to when they began: `5 starts, 2026-11-27 08:04 to 08:08`."""
        text, starts = counted(count, self.unit_of_times), self._starts.values()
        if not starts:
            return text
        first, last = min(starts), max(starts)
        if self.unit_of_times == "day":
            return f"{text}, {first:%Y-%m-%d} to {last:%Y-%m-%d}"
        end = "%H:%M" if first.date() == last.date() else "%Y-%m-%d %H:%M"
        return f"{text}, {first:%Y-%m-%d %H:%M} to {last:{end}}"

    def sessions_of_several_starts(self, records: Sequence[TrialRecord]) -> list[int]:
        """The sessions of which these trials began at several starts: after Ctrl-C, or because a study has grown. What
        changes from start to start does not change them alike. Also a session that ran while the study had only one:
        no start of it is kept, unlike of later ones, and its repeats did not run in turns."""
        starts: dict[int, set[str | None]] = {}
        for record in records:
            starts.setdefault(record.session, set()).add(record.began)
        any_kept = any(found != {None} for found in starts.values())
        return sorted(session for session, found in starts.items() if len(found) > 1 or (any_kept and found == {None}))

    def machines_of(self, records: Sequence[TrialRecord]) -> str:
        """How the machines and versions of trials differ, in words. A device that the study chose is none of that."""
        environments = [self.environment(record) for record in records]
        if (
            differing(environments, ["device"])
            and len({self.setting(each, "resources.device") for each in records}) > 1
        ):
            return differing(environments, OF_TIMES[1:])
        return differing(environments)

    def settings_of(self, row: PointRow) -> list[list[TrialRecord]]:
        """As `by_settings`, of all trials of a point."""
        return by_settings(record for record in self.records if label_of(record.point) == label_of(row.point))

    def setting(self, record: TrialRecord, key: str) -> Any:
        """The value that a trial gave to a key of its spec; None if that is not known."""
        for override in reversed(record.overrides):
            name, _, text = override.partition("=")
            if name == key:
                return json.loads(text)
            if key.startswith(f"{name}."):
                return _below(json.loads(text), key.removeprefix(f"{name}.").split("."))
        return _below(self._spec_at(label_of(record.point)), key.split("."))

    def momentum(self, record: TrialRecord) -> float | None:
        """The momentum of a trial; 0 for the optimizer `sgd` without one, None for optimizers of another kind."""
        found = self.setting(record, "optimizer.momentum")
        if found is None and self.setting(record, "optimizer.kind") == "sgd":
            return 0.0
        return None if found is None else float(found)

    def _spec_at(self, point: str) -> Any:
        """The spec of the first trial of a point that has a run folder. Other trials of the point may search other
        values, which their overrides hold."""
        if point not in self._specs:
            folders = (self.trial_dir(each.number) for each in self.records if label_of(each.point) == point)
            path = next((folder / "spec.yaml" for folder in folders if (folder / "spec.yaml").is_file()), None)
            self._specs[point] = read_document(path).value if path is not None else None
        return self._specs[point]

    @cached_property
    def _environments(self) -> dict[int, dict[str, Any]]:
        return {}

    @cached_property
    def _specs(self) -> dict[str, Any]:
        return {}


def _below(value: Any, parts: Sequence[str]) -> Any:
    """The value at this path of a section; None if there is none."""
    for part in parts:
        value = value.get(part) if isinstance(value, dict) else None
    return value
