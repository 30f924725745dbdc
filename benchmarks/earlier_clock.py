"""The reports in docs/studies without what the clock of alray before 0.3 decided.

Before 0.3 the seconds of training, of an epoch and to a target, and the bubble, were those of stage 0. Where stages
stream, it has finished its last mini-batch while later stages still train. So these figures are too small.
"""

from __future__ import annotations

from alray.config.study.points import series_label
from alray.report.invariants import TOLERANCE
from alray.studies.records import TrialRecord
from alray.studies.results import Results
from benchmarks.committed import Report

MARK = "**To be measured again.**"
"""On the page of a report that lacks figures for this reason."""


def measured_by_stage_0(report: Report, record: TrialRecord) -> bool:
    """Whether the seconds of a trial were those of stage 0, while later stages still trained."""
    summary = record.summary
    if not report.is_of_earlier_clock or summary is None:
        return False
    return summary.stages > 1 and summary.schedule == "streamed"


def breaks_the_bound(report: Report) -> bool:
    """Whether a trial by this clock trained for less time than its stages computed on average."""
    return report.is_of_earlier_clock and any(map(_breaks_the_bound, report.results.records))


def _breaks_the_bound(record: TrialRecord) -> bool:
    summary, times = record.summary, record.times
    if summary is None or times is None or times.training_s is None:
        return False
    parts = [part for part in (times.forward_s, times.backward_s, times.update_s) if part is not None]
    # The parts are sums over the stages of averages after warm-up. The busiest stage computes at least their mean.
    computed_s = summary.steps * sum(parts) / summary.stages
    return len(parts) == 3 and times.training_s < computed_s * (1.0 - TOLERANCE)


def without_the_clock(report: Report) -> tuple[Results, list[str]]:
    """The results without the figures that were those of stage 0, and the labels of the points that lack them."""
    records: list[TrialRecord] = []
    short: dict[str, None] = {}
    for record in report.results.records:
        if measured_by_stage_0(report, record) and _has_seconds(report, record):
            short[series_label(record.point)] = None
            record = _silent(record, report.spec_of(record).run.evaluate_every is not None)
        records.append(record)
    return Results(report.loaded.study, records, report.results.trial_dir), list(short)


def _has_seconds(report: Report, record: TrialRecord) -> bool:
    """Whether a page shows seconds of training or a bubble that evaluations made too small."""
    return report.loaded.study.measures == "all" or report.spec_of(record).run.evaluate_every is not None


def _silent(record: TrialRecord, evaluates: bool) -> TrialRecord:
    """The record without seconds of training and, if it evaluated on the way, without a bubble."""
    summary, times, reached = record.summary, record.times, record.reached
    if summary is not None and evaluates:
        summary = summary.model_copy(update={"bubble": None})
    if times is not None:
        times = times.model_copy(update={"training_s": None, "epoch_s": None})
    if reached is not None:
        reached = reached.model_copy(update={"training_s": None})
    return record.model_copy(update={"summary": summary, "times": times, "reached": reached})
