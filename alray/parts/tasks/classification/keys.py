"""`task: classification`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.task import TaskSection


class Classification(TaskSection):
    """Each sample has one of several classes. The loss is the cross-entropy, the metric the accuracy."""

    implementation = "task:ClassificationTask"
    label = "class"
    metric_name = "accuracy"

    kind: Literal["classification"] = "classification"
    """`classification`."""
