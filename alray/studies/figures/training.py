"""Figures of how the trials trained: accuracy on the way, accuracy of each depth, utilisation of each stage."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from alray.config.study.points import series_label
from alray.core.metric import Metric
from alray.core.run_folder.records import EvaluationRecord, StepRecord
from alray.report.attempts import Timed, split_attempts
from alray.report.drawing import MEASURED, Curves, Scale, error_bar, series_of
from alray.report.figure import Exhibit
from alray.report.same_weights import Weights, merged
from alray.report.spread import spread
from alray.report.thinning import groups, spaced
from alray.report.training_time import TRAINING_S, TrainingTime
from alray.studies.confidence import Interval, of_mean
from alray.studies.outcome import total_loss
from alray.studies.records import TrialRecord
from alray.studies.results import Results
from alray.studies.table import PointRow, of_seeds

MOST_POINTS = 24
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
    if len(results.rows) > MOST_POINTS or results.study.measures == "times":
        return None
    most = _MOST_EVALUATIONS // max(1, len(results.rows)) + 1
    rows = [each for row in results.rows for each in _evaluations(results, row, most)]
    if not any(row["evaluation"] > 1 for row in rows):
        return None
    metric = results.metric
    one_curve_each = merged(rows, _weights(results), ("samples", *_values(metric)))
    figures = []
    for name, title, x in (
        ("seconds", "seconds of training", Scale("seconds", TRAINING_S, from_zero=True)),
        ("samples", "samples", Scale("samples", "samples seen", form="~s", from_zero=True)),
    ):
        tells = {
            "series": "point",
            "seeds": "seeds",
            "step": "mini-batches",
            "seconds": "seconds",
            "samples": "samples",
        }
        drawn, series = (rows, series_of(rows)) if name == "seconds" else (one_curve_each.rows, one_curve_each.series)
        curves = Curves(x, Scale(metric.name, metric.title), series, tells=tells, size=14, bands=True)
        what = f"{metric.heading} during training against {title}"
        shown = [row for row in drawn if row[name] is not None]
        figures.append(curves.figure(f"{metric.name}_by_{name}", f"{metric.heading} against {title}", shown, what))
    return Exhibit(f"{metric.heading} during training", tuple(figures), one_curve_each.notes)


def losses(results: Results) -> Exhibit | None:
    """The sum of all losses of all components during training: the mean over the seeds of each point, up to where all
    of them trained; the band, from three seeds on, is its 90 % interval by Student's t. Local losses and those of
    backpropagation cannot be compared; their shapes can. Source: the losses in `records.jsonl` of each trial, as at
    most about 2,000 means over neighbouring mini-batches. Studies of more than 24 points, of scaling, with a search or
    with a target, and those that measure times only, have no such figure."""
    study = results.study
    unsuited = results.scaling is not None or study.search or study.target or study.measures == "times"
    if len(results.rows) > MOST_POINTS or unsuited:
        return None
    most = _MOST_EVALUATIONS // max(1, len(results.rows)) + 1
    rows = [each for row in results.rows for each in _losses(results, row, most)]
    if len(rows) < 2:
        return None
    rows, series, notes, _ = merged(rows, _weights(results), ("samples", "loss", "low", "high"))
    y = Scale("loss", "sum of all losses", base=10 if min(row["loss"] for row in rows) > 0 else 0)
    tells = {"series": "point", "seeds": "seeds", "step": "mini-batches"}
    x = Scale("samples", "samples seen", form="~s", from_zero=True)
    curves = Curves(x, y, series, tells=tells, size=6, bands=True)
    figure = curves.figure("losses", "Training loss", rows, "Training loss against samples")
    return Exhibit("Training loss", (figure,), notes)


def depths(results: Results) -> Exhibit | None:
    """The accuracy, or the metric of another task, of the final weights on the validation set (on the test set where
    there is none) by the depth of the route: depth n uses the first n components only. Mean over seeds; the bar, from
    three seeds on, is its 90 % interval by Student's t. Source: `accuracy_per_depth` of the summaries, or that of
    the metric. Studies of more than 24 points have no such figure."""
    metric = results.metric
    rows = [each for row in results.rows for each in _depths(row, metric)]
    if len(results.rows) > MOST_POINTS or len({row["depth"] for row in rows}) < 2:
        return None
    rows, series, notes, _ = merged(rows, _weights(results), ("depth", *_values(metric)))
    depth = Scale("depth", "depth of the route", ticks=sorted({row["depth"] for row in rows}), form="d")
    curves = Curves(depth, Scale(metric.name, metric.title), series, tells={"series": "point", "seeds": "seeds"})
    what = f"{metric.heading} by the depth of the route"
    figure = curves.figure(f"{metric.name}_per_depth", f"{metric.heading} per depth", rows, what)
    return Exhibit(f"{metric.heading} per depth", (figure,), notes)


def utilisation(results: Results) -> Exhibit | None:
    """The share of its time after warm-up in which each stage computes, evaluations left out: a mean over mini-batches,
    replicas and seeds. Source: the records of the stages in `records.jsonl` of each trial. Studies of more than 24
    points have no such figure, nor have trials whose stages take turns in one process."""
    if len(results.rows) > MOST_POINTS:
        return None
    rows = [each for row in results.rows for each in _utilisation(results, row)]
    if not any(row["stage"] > 0 for row in rows):
        return None
    stage = Scale("stage", "stage", ticks=sorted({row["stage"] for row in rows}), form="d")
    curves = Curves(stage, Scale("utilisation", "share of the time", form=".0%"), tells={"series": "point"})
    return Exhibit("Utilisation", (curves.figure("utilisation", "Utilisation of each stage", rows),))


def _evaluations(results: Results, row: PointRow, most: int) -> Iterator[dict[str, Any]]:
    """The evaluations that all trials of a point made, at most so many of them, evenly spaced; the last one is among
    them."""
    of_trials = [_scores(results, record) for record in row.best]
    shared = _shared(of_trials)
    for number, step in spaced(list(enumerate(shared, start=1)), most):
        each = [of_trial[step] for of_trial in of_trials]
        seconds = [each_s for *_, each_s in each if each_s is not None]
        yield {
            **_mean_position(row, step, each[0][0]),
            "evaluation": number,
            "seconds": fmean(seconds) if len(seconds) == len(each) else None,
            **_mean(results.metric.name, row.best, [value for _, value, _ in each], share=results.metric.share),
        }


def _weights(results: Results) -> dict[str, Weights | None]:
    """The final weights of each point, by its label."""
    return {series_label(row.point): row.weights for row in results.rows}


def _values(metric: Metric) -> tuple[str, ...]:
    """The fields of a row with a mean over seeds and its band."""
    return metric.name, "low", "high"


def _scores(results: Results, record: TrialRecord) -> dict[int, tuple[int, float, float | None]]:
    """Samples, metric and seconds of training of each evaluation of a trial, by its mini-batches."""
    records = results.records_of(record)
    training = TrainingTime(records)
    found = {}
    for one in reversed(records):
        if isinstance(one, EvaluationRecord):
            value = one.validation if one.validation is not None else one.test
            if value is not None:
                found[one.step] = one.samples, value, training.until(one.step)
    return found


def _losses(results: Results, row: PointRow, most: int) -> Iterator[dict[str, Any]]:
    """The losses of a point as at most so many means over neighbouring mini-batches and over its seeds."""
    of_trials = []
    for record in row.best:
        step_records = (one for one in results.records_of(record) if isinstance(one, StepRecord))
        of_trials.append({one.step: one for one in sorted(step_records, key=lambda one: one.step)})
    for steps in groups(_shared(of_trials), most):
        losses = []
        for of_trial in of_trials:
            group = [of_trial[step] for step in steps]
            counted = sum(one.mini_batches for one in group)
            losses.append(sum(total_loss(one) * one.mini_batches for one in group) / counted)
        if all(map(math.isfinite, losses)):
            position = _mean_position(row, steps[-1], of_trials[0][steps[-1]].samples)
            yield {**position, **_mean("loss", row.best, losses)}


def _shared(of_trials: Sequence[Mapping[int, Any]]) -> list[int]:
    """The numbers of mini-batches that all trials have."""
    return sorted(set(of_trials[0]).intersection(*of_trials[1:])) if of_trials else []


def _mean_position(row: PointRow, step: int, samples: int) -> dict[str, Any]:
    return {"series": series_label(row.point), "kind": MEASURED, "step": step, "samples": samples}


def _mean(name: str, trials: Sequence[TrialRecord], values: Sequence[float], *, share: bool = False) -> dict[str, Any]:
    """The mean over the seeds of these trials, and the ends of its band: the 90 % interval, without one for fewer
    seeds than show a spread.

    Args:
        share: whether the values lie in 0..1.
    """
    known = [mean for mean in of_seeds([record.seed for record in trials], values) if mean is not None]
    confidence = of_mean(known)
    interval = None if confidence is None else confidence.interval
    if interval is not None and share:
        interval = Interval(max(0.0, interval.low), min(1.0, interval.high))
    found = spread(known)
    assert found is not None
    return {name: found.mean, "seeds": found.runs, **error_bar(interval)}


def _depths(row: PointRow, metric: Metric) -> Iterator[dict[str, Any]]:
    measured: dict[int, list[tuple[TrialRecord, float]]] = {}
    for record in row.best:
        for each in record.summary.scores_per_depth if record.summary is not None else ():
            value = each.validation if each.validation is not None else each.test
            if value is not None:
                measured.setdefault(each.depth, []).append((record, value))
    for depth, known in sorted(measured.items()):
        group = {"series": series_label(row.point), "kind": MEASURED, "depth": depth}
        trials, values = [record for record, _ in known], [value for _, value in known]
        yield {**group, **_mean(metric.name, trials, values, share=metric.share)}


def _utilisation(results: Results, row: PointRow) -> Iterator[dict[str, Any]]:
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
