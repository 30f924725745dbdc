"""`run.trackers`: programs outside that show a run while it is running."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag

from alray.config.sections.choice import OPEN_TAG, Choice
from alray.config.sections.own_code import OwnCode, Reference
from alray.config.sections.section import Section, refusal


class TrackerSection(Section):
    """The keys that every tracker's section has."""

    implementation: ClassVar[str] = ""
    """The class that carries it out, as `module:Class`. It is called with `fields`."""
    library: ClassVar[str | None] = None
    """The module that must be installed, which is also the name of alray's extra."""

    kind: str
    """Which tracker."""

    @property
    def fields(self) -> dict[str, Any]:
        """The arguments of the tracker's constructor, by name: every key but `kind`."""
        return {key: getattr(self, key) for key in type(self).model_fields if key != "kind"}


class Mlflow(TrackerSection):
    """MLflow. Its own environment variables, such as MLFLOW_TRACKING_URI, say where the run goes."""

    implementation = "alray.report.trackers.mlflow:Mlflow"
    library = "mlflow"

    kind: Literal["mlflow"]
    """`mlflow`."""


class Wandb(TrackerSection):
    """Weights & Biases. Its own environment variables, such as WANDB_PROJECT and WANDB_MODE, say where the run goes."""

    implementation = "alray.report.trackers.wandb:Wandb"
    library = "wandb"

    kind: Literal["wandb"]
    """`wandb`."""


class OwnTracker(OwnCode, TrackerSection):
    """A tracker of one's own; the keys that are not listed here go to its constructor."""

    model_config = ConfigDict(extra="allow")

    kind: Reference
    """The class, as `python:package.module.Class`. It derives from `alray.report.trackers.tracker.Tracker`."""


Tracker = Annotated[
    Annotated[Mlflow, Tag("mlflow")] | Annotated[Wandb, Tag("wandb")] | Annotated[OwnTracker, Tag(OPEN_TAG)],
    Discriminator(Choice("kind")),
]


def _each_once(trackers: tuple[Tracker, ...]) -> tuple[Tracker, ...]:
    kinds = [tracker.kind for tracker in trackers]
    twice = next((kind for kind in kinds if kinds.count(kind) > 1), None)
    if twice is not None:
        raise refusal(f"`{twice}` is there twice", "name each tracker once")
    return trackers


Trackers = Annotated[tuple[Tracker, ...], AfterValidator(_each_once), Field(strict=False)]
