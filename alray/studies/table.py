"""The table of a study: one row for each point, made from the records of its trials.

With a search a row shows the best settings of its point. All seeds of settings count. With a target the best ones reach
it on the largest share of their seeds, then take the fewest mini-batches (Shallue et al. 2019); without one they come
to an end on the largest share of their seeds, then have the best validation accuracy (or metric of another task).
Trials that diverged, failed or were stopped have no figures; a figure that some seeds lack is marked."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from alray.config.study.points import in_words, label_of, named, parts_of, value_text
from alray.config.study.section import SCORES
from alray.core.counting import setting_text
from alray.core.metric import ACCURACY, Metric
from alray.core.run_folder.records import Summary
from alray.report.flat import flat
from alray.report.same_weights import Weights
from alray.report.spread import Spread, spread
from alray.report.table import CellValue, Column, Numbers, Table
from alray.report.text import NOT_MEASURED, number, score, seconds, share, whole
from alray.studies.records import TrialRecord, metric_of

ReadFigure = Callable[[TrialRecord], float | None]


def _score(record: TrialRecord, split: str) -> float | None:
    """The metric at the evaluation with the best validation accuracy, or best metric; at the end without a validation
    set, and where only the last evaluation used the test data (`run.test: end`)."""
    summary = record.summary
    if summary is None:
        return None
    best: float | None = getattr(summary.best or summary.scores, split)
    at_the_end: float | None = getattr(summary.scores, split)
    return at_the_end if best is None else best


def is_tested_later(record: TrialRecord) -> bool:
    """Whether the test metric of a trial is that of its last weights, where the validation metric is that of earlier
    ones: the run was not tested at its best evaluation."""
    summary = record.summary
    return bool(summary and summary.best and summary.best.test is None and summary.scores.test is not None)


def _measured(name: str) -> ReadFigure:
    """A figure of the summary."""
    return lambda record: getattr(record.summary, name) if record.summary is not None else None


def _to_reach(name: str) -> ReadFigure:
    """A figure of the way to the target."""
    return lambda record: getattr(record.reached, name) if record.reached is not None else None


def _took(name: str) -> ReadFigure:
    """A figure of what the trial took."""
    return lambda record: getattr(record.times, name) if record.times is not None else None


def _bytes_between_replicas(record: TrialRecord) -> float | None:
    """For one mini-batch; None with one replica."""
    summary = record.summary
    if summary is None or summary.replicas < 2 or not summary.steps:
        return None
    return summary.all_reduce_bytes / summary.steps


def _largest_of_stages(name: str) -> ReadFigure:
    """The largest of a figure that each stage has; None where a stage lacks it."""

    def largest(record: TrialRecord) -> float | None:
        of_stages: list[int | None] = getattr(record.summary, name, [])
        known = [each for each in of_stages if each is not None]
        return max(known) if known and len(known) == len(of_stages) else None

    return largest


def _bytes_between_stages(record: TrialRecord) -> float | None:
    """For one mini-batch, over all edges, those of evaluations included."""
    summary = record.summary
    return None if summary is None or not summary.steps else sum(summary.bytes_sent.values()) / summary.steps


def _metric_column(split: str) -> Column:
    return Column(split, split, score, "share")


ROW_FIGURES: dict[str, tuple[Column, ReadFigure]] = {
    column.name: (replace(column, spread=True), figure)
    for column, figure in (
        (_metric_column("validation"), lambda each: _score(each, "validation")),
        (_metric_column("test"), lambda each: _score(each, "test")),
        (Column("step_time_s", "step time", seconds, "seconds"), _measured("step_time_s")),
        (
            Column("predicted_step_time_s", "predicted", seconds, "seconds"),
            _measured("predicted_step_time_s"),
        ),
        (Column("samples_per_s", "samples/s", whole), _measured("samples_per_s")),
        (Column("bubble", "bubble", share, "share"), _measured("bubble")),
        (Column("training_s", "training time", seconds, "seconds"), _took("training_s")),
        (Column("epoch_s", "epoch", seconds, "seconds"), _took("epoch_s")),
        (Column("forward_s", "forward", seconds, "seconds"), _took("forward_s")),
        (Column("backward_s", "backward", seconds, "seconds"), _took("backward_s")),
        (Column("update_s", "update", seconds, "seconds"), _took("update_s")),
        (Column("parameters", "parameters", whole), _measured("parameters")),
        (
            Column("peak_memory_bytes", "peak memory of a stage (bytes)", whole),
            _largest_of_stages("peak_memory_bytes"),
        ),
        (
            Column("predicted_memory_bytes", "predicted memory of a stage (bytes)", whole),
            _largest_of_stages("predicted_memory_bytes"),
        ),
        (Column("bytes_sent", "bytes between stages", whole), _bytes_between_stages),
        (Column("all_reduce_bytes", "bytes between replicas", whole), _bytes_between_replicas),
        (Column("steps_to_target", "steps to target", number), _to_reach("step")),
        (Column("samples_to_target", "samples to target", number), _to_reach("samples")),
        (Column("seconds_to_target", "time to target", seconds, "seconds"), _to_reach("training_s")),
    )
}
"""Each figure of a row: its column, and how it is read from a trial."""

_TO_TARGET = tuple(name for name in ROW_FIGURES if name.endswith("_to_target"))
TIMES = (
    "step_time_s",
    "predicted_step_time_s",
    "samples_per_s",
    "bubble",
    "training_s",
    "epoch_s",
    "forward_s",
    "backward_s",
    "update_s",
    "seconds_to_target",
)
"""Figures that are times of a machine, or follow from them: they differ from session to session."""
_PARTS = ("forward_s", "backward_s", "update_s")
"""The parts of a mini-batch: columns of studies that measure times only."""
_OF_ALL_TRAINING = ("training_s", "epoch_s")
_IF_KNOWN = (*_OF_ALL_TRAINING, *_PARTS)
_IF_DIFFERENT = ("parameters", "all_reduce_bytes")
_IF_CHOSEN = ("peak_memory_bytes", "predicted_memory_bytes", "bytes_sent")
_GAINS = (
    Column("speed_up", "speed-up", number, spread=True),
    Column("efficiency", "efficiency", share, "share", spread=True),
)


@dataclass(frozen=True)
class PointRow:
    """One point.

    Attributes:
        settings: of the search, the best ones.
        best: their trials that came to an end; the figures are means over these.
        tried: the number of all their trials that are over.
        steps: the most mini-batches that a trial of the point ran.
    """

    point: dict[str, Any]
    trials: int
    statuses: dict[str, int]
    settings: dict[str, Any]
    best: tuple[TrialRecord, ...]
    tried: int
    steps: int | None
    figures: dict[str, Spread | None]
    speed_up: Spread | None = None  # over the point on the fewest devices with otherwise the same values
    efficiency: Spread | None = None  # speed_up divided by the ratio of the devices; 1 is ideal

    @property
    def seeds(self) -> int:
        """Number of seeds that the figures are means over. Each has a trial in every session."""
        return len({record.seed for record in self.best})

    @property
    def reached(self) -> int:
        """Number of trials with these settings that reached the target."""
        return sum(record.reached is not None for record in self.best)

    @property
    def summary(self) -> Summary | None:
        """The summary of the first trial with these settings, for its layout. None if no trial came to an end."""
        return next((record.summary for record in self.best), None)

    @property
    def weights(self) -> Weights | None:
        """The final weights of the seeds; None where one is not known."""
        known = sorted(
            (record.seed, record.summary.weights_sha256)
            for record in self.best
            if record.summary is not None and record.summary.weights_sha256 is not None
        )
        return tuple(known) if known and len(known) == len(self.best) else None

    def as_json(self) -> dict[str, Any]:
        numbers = [record.number for record in self.best]
        values = asdict(replace(self, best=()))
        return {**values, "best": numbers, "seeds": self.seeds, "reached": self.reached}


def weights_along(rows: Sequence[PointRow]) -> Weights | None:
    """The final weights of the seeds of several points, in order; None where one is not known."""
    found = [row.weights for row in rows]
    known = [weights for weights in found if weights is not None]
    return tuple(each for weights in known for each in weights) if len(known) == len(found) else None


def collapsed(row: PointRow) -> int:
    """The number of seeds of a point that came to their end and learned next to nothing, so that a mean over them
    describes no network that was trained: they are at chance, or their accuracy is less than half of that of the best
    seed. Errors and R² have no such half."""
    split = "test" if row.figures["validation"] is None else "validation"
    values = [(record, value_of(record, split)) for record in row.best]
    found = [(record, value) for record, value in values if value is not None and math.isfinite(value)]
    half = max((value for _, value in found), default=0.0) / 2 if metric_of(row.best).share else -math.inf
    return sum(value < half or _at_chance(record, value) for record, value in found)


def _at_chance(record: TrialRecord, value: float) -> bool:
    """Whether a metric is no better than chance by a tenth of the way to a perfect one. Of many classes chance is
    rare: twice as often is better."""
    summary, metric = record.summary, metric_of([record])
    if summary is None or summary.chance is None:
        return False
    perfect, chance = 0.0 if metric.lowest else 1.0, summary.chance
    bound = chance + (perfect - chance) * _NEXT_TO_NOTHING
    return not metric.is_better(value, min(bound, 2 * chance) if metric.share else bound)


_NEXT_TO_NOTHING = 0.1
"""Of the way from chance to a perfect metric."""


def value_of(record: TrialRecord, name: str) -> float | None:
    """A figure of a trial, by its name in `ROW_FIGURES`; None if the trial did not come to its end."""
    return ROW_FIGURES[name][1](record) if _came_to_an_end(record) else None


def of_seeds(seeds: Sequence[int], values: Sequence[float | None]) -> list[float | None]:
    """The mean of each seed over the trials that have the figure; None if none has it. What a seed learns it learns in
    every session, so its trials show no chance but that of one seed."""
    found: dict[int, list[float | None]] = {}
    for seed, value in zip(seeds, values, strict=True):
        found.setdefault(seed, []).append(value)
    return [None if (mean := spread(each)) is None else mean.mean for each in found.values()]


def by_settings(records: Iterable[TrialRecord]) -> list[list[TrialRecord]]:
    """The trials of a point: a list for each of the settings that were tried, in their order."""
    index = attrgetter("index")
    return [list(trials) for _, trials in groupby(sorted(records, key=index), index)]


def rows_of(records: Sequence[TrialRecord], *, target: bool) -> list[PointRow]:
    """A row for each point that has records, in the order of the trials."""
    by_point: dict[str, list[TrialRecord]] = {}
    for record in sorted(records, key=lambda record: record.number):
        by_point.setdefault(json.dumps(record.point), []).append(record)
    return [_row(trials, target) for trials in by_point.values()]


def table_of(
    rows: Sequence[PointRow],
    *,
    target: bool,
    times_only: bool = False,
    columns: Sequence[str] = (),
) -> Table:
    """The rows for the terminal and the page, and their values for the files.

    Args:
        times_only: no accuracies, and the parts of a mini-batch instead of the time of the whole training.
        columns: the names of those to show, as the CSV has them, which always has all; none: those that suit the study.

    Raises:
        RequestError: if there is no such column.
    """
    axes = list(dict.fromkeys(axis for row in rows for axis in row.point))
    keys = list(dict.fromkeys(key for row in rows for key in row.settings))
    gains = [column.name for column in _GAINS if any(row.speed_up is not None for row in rows)]
    measured = [name for name in ROW_FIGURES if _is_shown(name, rows, target, times_only)]
    metric = metric_of(record for row in rows for record in row.best)
    of_points = (of_metric(column, metric) for column, _ in ROW_FIGURES.values())
    whole_row = (*map(_setting_column, axes), *map(_setting_column, keys), *_COUNTS, *of_points, *_GAINS)
    cells = [_cells(row) for row in rows]
    chosen = columns or [*axes, *keys, "seeds", *(["reached", "tried"] if target else []), *measured, *gains]
    values = replace(_numbers(whole_row, cells), latex_columns=tuple(chosen))
    if columns:
        return replace(values.only(columns).texts, numbers=values)
    texts = ["point", "statuses", *keys, "seeds", *(["share_reached"] if target else []), *measured, *gains]
    return replace(_numbers((*whole_row, *_TEXTS), cells).only(texts).texts, numbers=values)


_SAME_DATA = ("data.batch_size", "data.workers", "data.last_batch", "data.augment", "data.mix")
"""Keys of `data` that leave the samples themselves as they are."""


def data_of(record: TrialRecord) -> str:
    """A text that is equal for trials that should have the same data. A seed may choose the validation set."""
    values: dict[str, Any] = {}
    for override in record.overrides:
        key, _, value = override.partition("=")
        values.update(flat({key: json.loads(value)}))
    data = {
        key: value
        for key, value in values.items()
        if parts_of(key)[0] in ("data", "task") and not key.startswith(_SAME_DATA)
    }
    return json.dumps([record.seed, data], sort_keys=True)


def _is_shown(name: str, rows: Sequence[PointRow], target: bool, times_only: bool) -> bool:
    """Whether a figure has a column if the user chose none."""
    unsuited = {*_IF_CHOSEN, *(SCORES if times_only else _PARTS), *(_OF_ALL_TRAINING if target or times_only else ())}
    if name in (unsuited if target else unsuited.union(_TO_TARGET)):
        return False
    means = {found.mean for row in rows if (found := row.figures[name]) is not None}
    return (name not in _IF_KNOWN or bool(means)) and (name not in _IF_DIFFERENT or len(means) > 1)


def trials_table(records: Sequence[TrialRecord]) -> Table:
    """Every trial that has ended, one row each."""
    axes = list(dict.fromkeys(axis for record in records for axis in record.point))
    keys = list(dict.fromkeys(key for record in records for key in record.values))
    metric = metric_of(records)
    of_trials = (of_metric(column, metric) for column in _OF_TRIALS)
    of_sessions = (Column("session", "session", kind="setting"), Column("began", "began"))
    sessions = of_sessions if any(each.session for each in records) else ()
    columns = (Column("trial", "trial", kind="setting"), *map(_setting_column, [*axes, *keys]), *sessions, *of_trials)
    cells = [_cells_of(record) for record in records]
    known = [name for name in SCORES if any(ROW_FIGURES[name][1](each) is not None for each in records)]
    counted = [column.name for column in sessions[:1]]
    names = ("trial", "point", "settings", *counted, "seed", "status", "steps", "steps_to_target", *known, "reason")
    texts = _numbers((*columns, *_TEXTS_OF_TRIALS), cells).only(names).texts
    return replace(texts, numbers=_numbers(columns, cells))


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings of a search in one line."""
    return ", ".join(named(key, _setting(value)) for key, value in settings.items())


def of_metric(column: Column, metric: Metric) -> Column:
    """A column, which says of values of a metric which one it is, unless it is the accuracy."""
    if metric == ACCURACY or column.name not in SCORES:
        return column
    return replace(column, title=f"{column.title} {metric.title}", kind="share" if metric.share else "count")


_COUNTS = (Column("trials", "trials"), Column("seeds", "seeds"), Column("reached", "reached"), Column("tried", "of"))
_TEXTS = (Column("point", "point"), Column("statuses", "trials"), Column("share_reached", "reached"))
_TEXTS_OF_TRIALS = (Column("point", "point"), Column("settings", "settings"))
_OF_TRIALS = (
    Column("seed", "seed", kind="setting"),
    Column("status", "status"),
    Column("steps", "mini-batches"),
    *(
        replace(column, spread=False, title="to the target" if name == "steps_to_target" else column.title)
        for name, (column, _) in ROW_FIGURES.items()
    ),
    Column("reason", "reason"),
)


def _setting_column(key: str) -> Column:
    """The column of an axis or of a key of the search."""
    return Column(key, in_words(key), _setting, "setting")


def _numbers(columns: Iterable[Column], cells: Sequence[Mapping[str, CellValue]]) -> Numbers:
    """A row for each of the cells. Of columns with the same name the first counts."""
    by_name = {column.name: column for column in reversed(list(columns))}
    of = tuple(reversed(by_name.values()))
    return Numbers(of, tuple(tuple(row.get(column.name) for column in of) for row in cells))


def _cells(row: PointRow) -> dict[str, CellValue]:
    """The values of a row by the name of their column."""
    return {
        **{axis: _value(value) for axis, value in row.point.items()},
        **{key: _value(value) for key, value in row.settings.items()},
        "point": label_of(row.point) or "the base",
        "statuses": ", ".join(f"{count} {status}" for status, count in row.statuses.items()),
        "share_reached": f"{row.reached} of {row.tried}",
        "trials": row.trials,
        "seeds": row.seeds,
        "reached": row.reached,
        "tried": row.tried,
        **row.figures,
        "speed_up": row.speed_up,
        "efficiency": row.efficiency,
    }


def _cells_of(record: TrialRecord) -> dict[str, CellValue]:
    """The values of a trial by the name of their column."""
    return {
        **{axis: _value(value) for axis, value in record.point.items()},
        **{key: _value(value) for key, value in record.values.items()},
        "trial": record.number,
        "point": label_of(record.point) or "the base",
        "settings": settings_text(record.values),
        "session": record.session + 1,
        "began": record.began,
        "seed": record.seed,
        "status": record.status,
        "steps": record.summary.steps if record.summary is not None else None,
        **{name: figure(record) for name, (_, figure) in ROW_FIGURES.items()},
        "reason": record.reason,
    }


def _value(value: Any) -> CellValue:
    """A value of a spec as a number or as a text."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else value_text(value)


def _row(trials: Sequence[TrialRecord], target: bool) -> PointRow:
    tried = min(by_settings(trials), key=_to_target if target else _to_accuracy)
    best = tuple(record for record in tried if _came_to_an_end(record))
    return PointRow(
        point=trials[0].point,
        trials=len(trials),
        statuses=dict(Counter(record.status for record in trials)),
        settings=best[0].values if best else {},
        best=best,
        tried=len(tried),
        steps=max((record.summary.steps for record in trials if record.summary is not None), default=None),
        figures={name: _over_seeds(tried, name) for name in ROW_FIGURES},
    )


def _came_to_an_end(record: TrialRecord) -> bool:
    return record.status in ("finished", "reached")


def _over_seeds(records: Sequence[TrialRecord], name: str) -> Spread | None:
    """A figure over the seeds of settings; those that did not come to an end lack it. Times are those of all sessions,
    which differ in them."""
    values = [value_of(record, name) for record in records]
    return spread(values if name in TIMES else of_seeds([record.seed for record in records], values))


def _to_target(records: Sequence[TrialRecord]) -> tuple[float, ...]:
    """The smaller, the better: the share of seeds that did not reach the target, mini-batches of the others, error."""
    steps = _over_seeds(records, "steps_to_target")
    reached = sum(record.reached is not None for record in records)
    return (-reached / len(records), steps.mean if steps else 0.0, *_to_accuracy(records))


def _to_accuracy(records: Sequence[TrialRecord]) -> tuple[float, ...]:
    """The smaller, the better: the share of seeds that did not come to an end, error."""
    found, metric = _over_seeds(records, "validation"), metric_of(records)
    cost = 0.0 if metric.share else math.inf
    if found is not None:
        cost = math.inf if math.isnan(found.mean) else found.mean if metric.lowest else -found.mean
    return (-sum(map(_came_to_an_end, records)) / len(records), cost)


def _setting(value: Any) -> str:
    if value is None:
        return NOT_MEASURED
    return setting_text(value) if isinstance(value, float) else value_text(value)
