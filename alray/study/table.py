"""The table of a study: one row for each point, made from the records of its trials.

With a search a row shows the best settings of its point. With a target these are the settings that reach it on the most
seeds, then those that take the fewest mini-batches (Shallue et al. 2019); without one, those with the best validation
accuracy. Trials that diverged, failed or were stopped are counted and give no figures.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from alray.records import Summary
from alray.report.compare import Spread, spread
from alray.report.compare_tables import shown
from alray.report.table import Table, csv_text
from alray.report.text import NOT_MEASURED, accuracy, number, seconds, share, whole
from alray.spec.study.points import label_of, value_text
from alray.study.records import TrialRecord

Figure = Callable[[TrialRecord], float | None]


def _accuracy(record: TrialRecord, split: str) -> float | None:
    """At the evaluation with the best validation accuracy; without a validation set, at the end."""
    summary = record.summary
    value: float | None = getattr(summary.best or summary.accuracy, split) if summary is not None else None
    return value


def _measured(name: str) -> Figure:
    """A figure of the summary."""
    return lambda record: getattr(record.summary, name) if record.summary is not None else None


def _to_reach(name: str) -> Figure:
    """A figure of the way to the target."""
    return lambda record: getattr(record.reached, name) if record.reached is not None else None


FIGURES: dict[str, tuple[str, Figure, Callable[[float | None], str]]] = {
    "validation": ("validation", lambda record: _accuracy(record, "validation"), accuracy),
    "test": ("test", lambda record: _accuracy(record, "test"), accuracy),
    "step_time_s": ("step time", _measured("step_time_s"), seconds),
    "predicted_step_time_s": ("predicted", _measured("predicted_step_time_s"), seconds),
    "samples_per_s": ("samples/s", _measured("samples_per_s"), whole),
    "bubble": ("bubble", _measured("bubble"), share),
    "steps_to_target": ("steps to target", _to_reach("step"), number),
    "samples_to_target": ("samples to target", _to_reach("samples"), number),
    "seconds_to_target": ("time to target", _to_reach("training_s"), seconds),
}
"""Each figure of a row: its heading, how it is read from a trial, and how it is shown."""

_TO_TARGET = tuple(name for name in FIGURES if name.endswith("_to_target"))


@dataclass(frozen=True)
class Row:
    """One point.

    settings: of the search, the best ones. best: their trials that came to an end; the figures are means over these.
    tried: the number of their trials, without those that failed.
    """

    point: dict[str, Any]
    trials: int
    statuses: dict[str, int]
    settings: dict[str, Any]
    best: tuple[TrialRecord, ...]
    tried: int
    figures: dict[str, Spread | None]
    speed_up: float | None = None  # over the point that differs only in having the fewest devices
    efficiency: float | None = None  # speed_up for each of the devices that there are more; 1 is ideal

    @property
    def seeds(self) -> int:
        """Number of trials that the figures are means over."""
        return len(self.best)

    @property
    def reached(self) -> int:
        """Number of trials with these settings that reached the target."""
        return sum(record.reached is not None for record in self.best)

    @property
    def summary(self) -> Summary | None:
        """Of the first trial with these settings: how it was laid out. None if no trial came to an end."""
        return next((record.summary for record in self.best), None)

    def as_json(self) -> dict[str, Any]:
        numbers = [record.number for record in self.best]
        values = asdict(replace(self, best=()))
        return {**values, "best": numbers, "seeds": self.seeds, "reached": self.reached}


def rows_of(records: Sequence[TrialRecord], *, target: bool) -> list[Row]:
    """A row for each point that has records, in the order of the trials."""
    by_point: dict[str, list[TrialRecord]] = {}
    for record in sorted(records, key=lambda record: record.number):
        by_point.setdefault(json.dumps(record.point), []).append(record)
    return [_row(trials, target) for trials in by_point.values()]


def table_of(rows: Sequence[Row], *, target: bool) -> Table:
    """The rows as texts, for the terminal and for the page."""
    _, keys = _columns(rows)
    names = [name for name in FIGURES if target or name not in _TO_TARGET]
    scaling = any(row.speed_up is not None for row in rows)
    head = ("point", "trials", *keys, "seeds", *(["reached"] if target else []), *(FIGURES[name][0] for name in names))
    head += ("speed-up", "efficiency") if scaling else ()
    return Table(
        head,
        tuple(
            (
                label_of(row.point) or "the base",
                ", ".join(f"{count} {status}" for status, count in row.statuses.items()),
                *(_setting(row.settings[key]) if key in row.settings else NOT_MEASURED for key in keys),
                str(row.seeds),
                *([f"{row.reached} of {row.tried}"] if target else []),
                *(shown(row.figures[name], FIGURES[name][2]) for name in names),
                *([number(row.speed_up), share(row.efficiency)] if scaling else []),
            )
            for row in rows
        ),
    )


def trials_table(records: Sequence[TrialRecord]) -> Table:
    """Every trial that has ended, one row each."""
    head = (
        "trial",
        "point",
        "settings",
        "seed",
        "status",
        "mini-batches",
        "to the target",
        "validation",
        "test",
        "reason",
    )
    return Table(
        head,
        tuple(
            (
                str(record.number),
                label_of(record.point) or "the base",
                settings_text(record.values),
                str(record.seed),
                record.status,
                number(record.summary.steps if record.summary is not None else None),
                number(record.reached.step if record.reached is not None else None),
                accuracy(_accuracy(record, "validation")),
                accuracy(_accuracy(record, "test")),
                record.reason or "",
            )
            for record in records
        ),
    )


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings of a search in one line."""
    return ", ".join(f"{key}={_setting(value)}" for key, value in settings.items())


def csv_of(rows: Sequence[Row]) -> str:
    """The rows as CSV: every figure as mean and sample standard deviation, in seconds and shares."""
    axes, keys = _columns(rows)
    spreads = [f"{name}{ending}" for name in FIGURES for ending in ("", "_deviation")]
    head = [*axes, "trials", *keys, "seeds", "reached", "tried", *spreads, "speed_up", "efficiency"]
    return csv_text(head, (_numbers(row, axes, keys) for row in rows))


def _numbers(row: Row, axes: Sequence[str], keys: Sequence[str]) -> list[Any]:
    figures = [row.figures[name] for name in FIGURES]
    return [
        *(value_text(row.point[axis]) for axis in axes),
        row.trials,
        *(row.settings.get(key) for key in keys),
        row.seeds,
        row.reached,
        row.tried,
        *(value for one in figures for value in ((one.mean, one.deviation) if one else (None, None))),
        row.speed_up,
        row.efficiency,
    ]


def _columns(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """The axes, and the keys of the search."""
    axes = list(dict.fromkeys(axis for row in rows for axis in row.point))
    return axes, list(dict.fromkeys(key for row in rows for key in row.settings))


def _row(trials: Sequence[TrialRecord], target: bool) -> Row:
    by_settings: dict[int, list[TrialRecord]] = {}
    for record in trials:
        if record.status in ("finished", "reached"):
            by_settings.setdefault(record.index, []).append(record)
    best = min(by_settings.values(), key=_to_target if target else _to_accuracy, default=[])
    return Row(
        point=trials[0].point,
        trials=len(trials),
        statuses=dict(Counter(record.status for record in trials)),
        settings=best[0].values if best else {},
        best=tuple(best),
        tried=sum(record.status != "failed" and record.index == best[0].index for record in trials) if best else 0,
        figures={name: spread(figure(record) for record in best) for name, (_, figure, _) in FIGURES.items()},
    )


def _to_target(records: Sequence[TrialRecord]) -> tuple[float, ...]:
    """The smaller, the better: seeds that did not reach the target, mini-batches of the others, error."""
    steps = spread(FIGURES["steps_to_target"][1](record) for record in records)
    reached = sum(record.reached is not None for record in records)
    return (-reached, steps.mean if steps else 0.0, *_to_accuracy(records))


def _to_accuracy(records: Sequence[TrialRecord]) -> tuple[float, ...]:
    found = spread(_accuracy(record, "validation") for record in records)
    return (-found.mean if found else 0.0,)


def _setting(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else value_text(value)
