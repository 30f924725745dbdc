"""MLflow: a run of its experiment. MLFLOW_TRACKING_URI and its other variables say where."""

from __future__ import annotations

import os
from collections.abc import Sequence

from alray.core.run_folder.records import Status
from alray.report.trackers.tracker import TrackedPoint, TrackedRun, Tracker

_STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class MlflowTracker(Tracker):
    """Writes parameters and metrics.

    A resume continues the same run. MLflow cannot change the parameters of a run, so they stay those of its start;
    and it keeps metrics of mini-batches that were done again next to the later ones.
    """

    faults: tuple[type[Exception], ...] = (ImportError, OSError)

    def start(self, run: TrackedRun) -> str:
        # MLflow would print addresses into the display of the run.
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        import mlflow
        from mlflow.entities import Param
        from mlflow.exceptions import MlflowException

        self.faults = (MlflowException, *MlflowTracker.faults)
        tags = {"alray.run_dir": run.run_dir, **({"alray.study": run.study} if run.study is not None else {})}
        begun = mlflow.start_run(run_id=run.id, run_name=run.name, tags=tags)
        self._client = mlflow.MlflowClient()
        self._id = str(begun.info.run_id)
        if run.id is None:
            parameters = [Param(key, str(value)) for key, value in run.parameters.items()]
            self._client.log_batch(self._id, params=parameters, synchronous=True)
        return self._id

    def write(self, points: Sequence[TrackedPoint]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(tag, value, int(point.wall_s * 1e3), point.step)
            for point in points
            for tag, value in point.scalars.items()
        ]
        self._client.log_batch(self._id, metrics=metrics, synchronous=True)

    def end(self, status: Status) -> None:
        import mlflow

        mlflow.end_run(_STATUS[status])
