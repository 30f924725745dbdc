"""Each sample has one or more numbers, its targets.

`METRICS` are those of this task. `docs/network.md` defines them, and `task.py` computes them.
"""

from __future__ import annotations

from alray.core.metric import Metric

METRICS = (
    Metric("r2", "R²"),
    Metric("mean_squared_error", "mean squared error", lowest=True),
    Metric("mean_absolute_error", "mean absolute error", lowest=True),
)
