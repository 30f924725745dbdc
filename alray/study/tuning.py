"""Trials as a Ray Tune experiment: the one file that imports ray.tune.

Tune gets the numbers of the trials that have not ended, and holds nothing that a resume needs: a resume is a new
experiment. A trial of several stages runs in the placement group that Tune makes for it. A trial of one stage runs in
the trial's own process. Processes are used again for the next trial of the same resources.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Any

from ray import tune
from ray.tune import Callback, PlacementGroupFactory

from alray.graph.cluster import Bundle
from alray.graph.placement import ray_bundle
from alray.run.engines import stage_bundles
from alray.spec.models import Spec
from alray.study.trial import Order, run_trial

_QUIET = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",  # nothing that Tune could save is ever read
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
}
_NUMBER = "trial"


def runs_in_one_process(spec: Spec) -> bool:
    """Whether a trial has a single stage."""
    return spec.pipeline.stages * spec.replicas.count == 1


def trial_resources(spec: Spec) -> PlacementGroupFactory:
    """The placement group of a trial: one bundle for each stage, after an empty one for the trial's own process unless
    the one stage runs there."""
    bundles = [ray_bundle(bundle) for bundle in stage_bundles(spec, spec.pipeline.stages, spec.replicas.count)]
    own: list[Bundle] = [] if runs_in_one_process(spec) else [{}]
    labels = dict(spec.resources.labels)
    selectors = {"bundle_label_selector": [labels] * len(bundles)} if labels else {}
    return PlacementGroupFactory([*own, *bundles], strategy="PACK", **selectors)


class _Watch(Callback):
    """Tells of trials that end, in whatever way."""

    def __init__(self, ended: Callable[[int, str | None], None]) -> None:
        self._ended = ended

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its callbacks to restore an experiment; alray restores none."""
        return {}

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._ended(trial.config[_NUMBER], None)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        error = trial.get_pickled_error() or trial.get_error()
        lines = str(error).strip().splitlines() or ["no message"]
        self._ended(trial.config[_NUMBER], f"the process of the trial ended: {lines[-1].strip()}")


def run_trials(
    orders: Sequence[tuple[Order, Spec]], *, max_concurrent: int | None, ended: Callable[[int, str | None], None]
) -> None:
    """Run the trials on the connected cluster. Returns when all have ended, or at the first Ctrl-C.

    ended: is called with the number of each trial that has ended, and with the reason if its process did not return.
    """
    os.environ |= _QUIET
    by_number = {order.trial.number: (order, spec) for order, spec in orders}

    def trainable(config: dict[str, Any]) -> None:
        run_trial(by_number[config[_NUMBER]][0])

    def name(trial: Any) -> str:
        return f"{trial.config[_NUMBER]:04d}"

    # Tune prints on standard output what it does; `ended` tells what matters.
    with tempfile.TemporaryDirectory(prefix="alray-tune-") as storage, redirect_stdout(io.StringIO()):
        tune.Tuner(
            tune.with_resources(trainable, lambda config: trial_resources(by_number[config[_NUMBER]][1])),
            param_space={_NUMBER: tune.grid_search(sorted(by_number))},
            tune_config=tune.TuneConfig(
                max_concurrent_trials=max_concurrent,
                reuse_actors=True,
                trial_name_creator=name,
                trial_dirname_creator=name,
            ),
            run_config=tune.RunConfig(name="study", storage_path=storage, verbose=0, callbacks=[_Watch(ended)]),
        ).fit()
