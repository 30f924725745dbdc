"""What a study would do, without running anything: its points, what their trials ask for, how long they would take."""

from __future__ import annotations

from dataclasses import dataclass

from alray.errors import AlrayError
from alray.orchestrate import plan_spec
from alray.run.engines import stage_bundles
from alray.run.options import Options
from alray.spec.study.loading import LoadedStudy
from alray.study.trial import Unwatched


@dataclass(frozen=True)
class Forecast:
    """A point of a study before it runs."""

    point: str
    trials: int
    stages: int
    replicas: int
    resources: dict[str, float]  # of one trial
    trial_s: float | None  # predicted duration of the training of one trial; None if it cannot be predicted
    source: str  # of the prediction: `given` or `estimated` costs, or why there is none


def forecasts(loaded: LoadedStudy, *, allow_code: bool) -> list[Forecast]:
    """A forecast of every point. Times are predicted from given or counted costs; nothing is measured."""
    found = []
    for point, spec in zip(loaded.points, loaded.specs, strict=True):
        trials = [trial for trial in loaded.trials if trial.point is point]
        bundles = stage_bundles(spec, spec.pipeline.stages, spec.replicas.count)
        resources = {
            name: sum(bundle.get(name, 0.0) for bundle in bundles)
            for name in sorted({name for bundle in bundles for name in bundle})
        }
        overrides = list(trials[0].overrides)
        try:
            options = Options(allow_code=allow_code)
            _, plan = plan_spec(loaded.study.base, overrides, probe=False, options=options, observer=Unwatched())
        except AlrayError as error:
            trial_s, source = None, str(error)
        else:
            trial_s, source = (plan.total_steps or 0) * plan.predicted_step_time_s, plan.costs.source
        found.append(
            Forecast(point.label, len(trials), spec.pipeline.stages, spec.replicas.count, resources, trial_s, source)
        )
    return found
