from __future__ import annotations

from typing import Literal

from alray.config.sections.task import TaskSection


class DenseClassification(TaskSection):
    """Each token or pixel of a sample has one of several classes. The loss is the cross-entropy, the mean over all
    positions of a mini-batch that have a class."""

    implementation = "task:DenseClassificationTask"
    label = "classes"

    kind: Literal["dense_classification"]
    """`dense_classification`."""
    metric: Literal["accuracy", "macro_f1", "mean_iou"] = "accuracy"
    """Metric of evaluations over all positions that have a class; its highest value is the best. `macro_f1`: as of
    `classification`. `mean_iou`: the mean over the classes of right / (positions + predictions - right), the
    intersection over the union. Default: accuracy."""
    ignored: int = -100
    """Label of positions without a class, such as padding. Default: -100."""
