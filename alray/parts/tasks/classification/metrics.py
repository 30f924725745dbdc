"""The metrics of this task. `docs/writing_a_spec.md` defines them, and `task.py` computes them."""

from __future__ import annotations

from alray.core.metric import ACCURACY

METRICS = (ACCURACY,)
