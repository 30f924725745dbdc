"""Each sample has any number of several labels.

`METRICS` are those of this task. `docs/network.md` defines them, and `task.py` computes them.
"""

from __future__ import annotations

from alray.core.metric import Metric

METRICS = (Metric("mean_average_precision", "mean average precision", share=True),)
