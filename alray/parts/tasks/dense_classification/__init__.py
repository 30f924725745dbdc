"""Each position of a sample has one of several classes: a token, or a pixel.

`METRICS` are those of this task. `docs/network.md` defines them, and `task.py` computes them.
"""

from __future__ import annotations

from alray.core.metric import Metric

METRICS = (Metric("mean_iou", "mean IoU", share=True),)
"""`task: dense_classification`, besides those of `classification`."""
