"""All metrics of evaluations by name.

Records name metrics and need to know which value is better, so this file is in `core`. Those of a task are in
`alray/parts/tasks/<name>/__init__.py`, and are found by name. Such a file imports nothing but `core`, which
import-linter checks: so `core` does not depend on the layers above it.
"""

from __future__ import annotations

from alray.core.metric import Metric
from alray.core.parts import module_of, names_of

OF_OWN_TASKS = (Metric("score", "score"), Metric("cost", "cost", lowest=True))
"""The metrics of a user's tasks."""

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metrics in (*(module_of("tasks", name).METRICS for name in names_of("tasks")), OF_OWN_TASKS)
    for metric in metrics
}
"""Those of alray's tasks, and those of the user's tasks. `docs/network.md` defines them."""
