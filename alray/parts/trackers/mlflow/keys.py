"""`run.trackers: [mlflow]`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.trackers import TrackerSection


class Mlflow(TrackerSection):
    """MLflow. Its environment variables, such as MLFLOW_TRACKING_URI, say where the run goes."""

    implementation = "tracker:MlflowTracker"
    library = "mlflow"

    kind: Literal["mlflow"]
    """`mlflow`."""
