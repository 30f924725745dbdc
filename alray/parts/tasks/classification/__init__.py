"""Each sample has one of several classes.

`METRICS` are those of this task. `docs/network.md` defines them, and `task.py` computes them.
"""

from __future__ import annotations

from alray.core.metric import ACCURACY, Metric

METRICS = (
    ACCURACY,
    Metric("balanced_accuracy", "balanced accuracy", share=True),
    Metric("macro_f1", "macro F1", share=True),
)
