"""The forecast of a study, without running anything: its points and the resources that their trials request.

It says nothing of time. Costs that are only counted are shares of a step, not seconds; and what a trial takes besides
its steps (its start, its evaluations) is known once trials have ended.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from alray.config.study.load import LoadedStudy
from alray.runtime.runner.engines import stage_bundles


@dataclass(frozen=True)
class Forecast:
    """A point of a study before it runs.

    Attributes:
        resources: of one trial.
    """

    point: str
    trials: int
    stages: int
    replicas: int
    resources: dict[str, float]


def forecasts(loaded: LoadedStudy) -> list[Forecast]:
    """A forecast of every point that has trials: of a study that goes on, some may have none left."""
    trials, found = Counter(trial.point.number for trial in loaded.trials), []
    for point, spec in zip(loaded.points, loaded.specs, strict=True):
        if not trials[point.number]:
            continue
        resources: Counter[str] = Counter()
        for bundle in stage_bundles(spec):
            resources.update(bundle)
        stages, replicas = spec.pipeline.stages, spec.replicas.count
        found.append(Forecast(point.label, trials[point.number], stages, replicas, dict(sorted(resources.items()))))
    return found
