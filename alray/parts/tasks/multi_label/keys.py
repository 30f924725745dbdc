"""`task: multi_label`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.task import TaskSection


class MultiLabel(TaskSection):
    """Each sample has any number of several labels. The loss is the binary cross-entropy of each label, the metric the
    mean of the labels' average precisions."""

    implementation = "task:MultiLabelTask"
    label = "flags"
    metric_name = "mean_average_precision"

    kind: Literal["multi_label"]
    """`multi_label`."""
