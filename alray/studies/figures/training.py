"""Figures of how the trials trained: accuracy on the way, accuracy of each depth, utilisation of each stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean

from alray.config.study.points import series_label
from alray.core.metric import Metric
from alray.core.run_folder.records import EvaluationRecord
from alray.report.attempts import Timed, split_attempts
from alray.report.drawing import MEASURED, Curves, Scale, error_bar
from alray.report.figure import Exhibit
from alray.report.spread import spread
from alray.report.training_curves import Row, depth_figure, training_exhibit, training_rows
from alray.report.training_time import TrainingTime
from alray.studies.confidence import Interval, of_mean
from alray.studies.records import TrialRecord
from alray.studies.results import Results
from alray.studies.table import PointRow, of_seeds

_MOST_POINTS = 24
"""Studies with more points have no such figures: one could not tell their curves apart."""
_MOST_EVALUATIONS = 2000
"""The most evaluations of all trials together, so that the page and the files stay small."""


def race(results: Results) -> Exhibit | None:
    """Validation accuracy, or the metric of another task (on the test set where there is no validation set), at every
    evaluation, against seconds of training and against samples seen: the mean over the seeds of each point, at the
    evaluations that all of them made; the band, from three seeds on, is its 90 % interval by Student's t. The seconds,
    a mean as well, count training only: no start-up and no evaluations. With a search, the curves are those of the best
    settings. Source: the evaluations in `records.jsonl` of each trial, of which at most about 2,000 are drawn. Studies
    of more than 24 points, and those that measure times only, have no such figure."""
    if len(results.rows) > _MOST_POINTS or results.study.measures == "times":
        return None
    most = _MOST_EVALUATIONS // max(1, len(results.rows)) + 1
    rows = [each for row in results.rows for each in _evaluations(results, row, most)]
    if not any(row["evaluation"] > 1 for row in rows):
        return None
    return training_exhibit(results.metric, rows, {series_label(row.point): row.weights for row in results.rows})


def depths(results: Results) -> Exhibit | None:
    """The accuracy, or the metric of another task, of the final weights on the validation set (on the test set where
    there is none) by the depth of the route: depth n uses the first n components only. Mean over seeds; the bar, from
    three seeds on, is its 90 % interval by Student's t. Source: `accuracy_per_depth` of the summaries, or that of
    the metric. Studies of more than 24 points have no such figure."""
    metric = results.metric
    rows = [each for row in results.rows for each in _depths(row, metric)]
    if len(results.rows) > _MOST_POINTS or len({row["depth"] for row in rows}) < 2:
        return None
    figure, notes = depth_figure(metric, rows, {series_label(row.point): row.weights for row in results.rows})
    return Exhibit(f"{metric.heading} per depth", (figure,), notes)


def utilisation(results: Results) -> Exhibit | None:
    """The share of its time after warm-up in which each stage computes, evaluations left out: a mean over mini-batches,
    replicas and seeds. Source: the records of the stages in `records.jsonl` of each trial. Studies of more than 24
    points have no such figure, nor have trials whose stages take turns in one process."""
    if len(results.rows) > _MOST_POINTS:
        return None
    rows = [each for row in results.rows for each in _utilisation(results, row)]
    if not any(row["stage"] > 0 for row in rows):
        return None
    stage = Scale("stage", "stage", ticks=sorted({row["stage"] for row in rows}), form="d")
    curves = Curves(stage, Scale("utilisation", "share of the time", form=".0%"), tells={"series": "point"})
    return Exhibit("Utilisation", (curves.figure("utilisation", "Utilisation of each stage", rows),))


def _evaluations(results: Results, row: PointRow, most: int) -> Iterator[Row]:
    """The curve of a point."""
    runs = []
    for record in row.best:
        records = results.records_of(record)
        runs.append(([each for each in records if isinstance(each, EvaluationRecord)], TrainingTime(records)))
    yield from training_rows(series_label(row.point), runs, most, partial(_mean, results.metric, row.best))


def _mean(metric: Metric, trials: Sequence[TrialRecord], values: Sequence[float]) -> Row:
    """The mean over the seeds of these trials, and the ends of its band: the 90 % interval, without one for fewer
    seeds than show a spread."""
    known = [mean for mean in of_seeds([record.seed for record in trials], values) if mean is not None]
    confidence = of_mean(known)
    interval = None if confidence is None else confidence.interval
    if interval is not None and metric.share:
        interval = Interval(max(0.0, interval.low), min(1.0, interval.high))
    found = spread(known)
    assert found is not None
    return {metric.name: found.mean, "seeds": found.runs, **error_bar(interval)}


def _depths(row: PointRow, metric: Metric) -> Iterator[Row]:
    measured: dict[int, list[tuple[TrialRecord, float]]] = {}
    for record in row.best:
        for each in record.summary.scores_per_depth if record.summary is not None else ():
            value = each.validation if each.validation is not None else each.test
            if value is not None:
                measured.setdefault(each.depth, []).append((record, value))
    for depth, known in sorted(measured.items()):
        trials, values = [record for record, _ in known], [value for _, value in known]
        yield {
            "series": series_label(row.point),
            "kind": MEASURED,
            "depth": depth,
            **_mean(metric, trials, values),
        }


def _utilisation(results: Results, row: PointRow) -> Iterator[Row]:
    shares: dict[int, list[float]] = {}
    for record in row.best:
        if record.summary is None or record.summary.bubble is None:
            continue
        attempts = [attempt for attempt in split_attempts(results.records_of(record)) if attempt.timed]
        timed = attempts[-1].timed if attempts else Timed()
        for stage in {one.stage for one in timed.records}:
            if (share := timed.utilisation(stage)) is not None:
                shares.setdefault(stage, []).append(share)
    for stage, found in sorted(shares.items()):
        yield {"series": series_label(row.point), "kind": MEASURED, "stage": stage, "utilisation": fmean(found)}
