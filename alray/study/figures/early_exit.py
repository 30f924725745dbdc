"""Figures of early exits: accuracy against the time of a prediction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alray.report.compare import spread
from alray.report.drawing import MEASURED, Curves, Scale, colours_of
from alray.report.figure import Exhibit
from alray.spec.study.points import series_label
from alray.study.results import Results
from alray.study.table import Row

_KINDS = {False: "one depth", True: "by confidence"}


def early_exits(results: Results) -> Exhibit | None:
    """The accuracy on the test set (on the validation set where there is none) against the time of predicting one
    sample. A curve of circles has a point for each depth, at which all predictions end. A curve of squares has a point
    for each threshold: a prediction ends at the first depth whose confidence, the softmax of the class scores, reaches
    it. Its time includes the answers of the depths that are passed. Mean over seeds. Source: `exits` in `trial.json`.
    """
    rows = [each for row in results.rows for each in _exits(row)]
    if not rows:
        return None
    series = colours_of(list(dict.fromkeys(row["series"] for row in rows)))
    curves = Curves(
        Scale("milliseconds", "milliseconds of a prediction", from_zero=True),
        Scale("accuracy", "accuracy"),
        series,
        marks=tuple(_KINDS.values()),
        tells={"series": "point", "mark": "exits", "depth": "mean depth", "threshold": "threshold", "seeds": "seeds"},
        each="mark",
    )
    what = f"Accuracy against the time of a prediction: {', '.join(each.label for each in series)}."
    figure = curves.figure("early_exits", "Accuracy against the time of a prediction", what, rows)
    return Exhibit("Early exits", (figure,))


def _exits(row: Row) -> Iterator[dict[str, Any]]:
    """The mean over the seeds of each depth and each threshold."""
    for each in zip(*(record.exits for record in row.best), strict=True):
        accuracies = spread(one.test if one.test is not None else one.validation for one in each)
        times, depths = spread(one.s_per_sample for one in each), spread(one.depth for one in each)
        if accuracies is not None and times is not None and depths is not None:
            yield {
                "series": series_label(row.point),
                "kind": MEASURED,
                "mark": _KINDS[each[0].threshold is not None],
                "depth": depths.mean,
                "threshold": each[0].threshold,
                "milliseconds": 1e3 * times.mean,
                "accuracy": accuracies.mean,
                "seeds": accuracies.runs,
            }
