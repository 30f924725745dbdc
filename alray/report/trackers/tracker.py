"""The interface of trackers. Derive from `Tracker` to write your own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alray.core.errors import FAULTS_OF_USER_CODE
from alray.core.run_folder.records import Status


@dataclass(frozen=True)
class TrackedPoint:
    """Scalars of one moment. Without scalars: the run went back to `step`, and what came after it is done again."""

    step: int
    """Mini-batches completed."""
    wall_s: float
    """Seconds since 1970, as `time.time()`."""
    scalars: Mapping[str, float]
    """By tag, such as `loss_associated/component_00`, `accuracy/validation` or `samples_per_s`."""


@dataclass(frozen=True)
class TrackedRun:
    """The facts about its run that a tracker gets."""

    name: str
    """A name that no other run has: that of the run folder, or of the study and the trial."""
    run_dir: str
    """Absolute path or URL of the run folder."""
    parameters: Mapping[str, Any]
    """Every value of the spec, by its key as in an override: `optimizer.lr`, `model.components.0.width`."""
    study: str | None
    """Name of the study's folder; None if the run is no trial."""
    id: str | None
    """The value that `Tracker.start` returned when the run began; None then."""


class Tracker(ABC):
    """Shows one run.

    It is made before anything runs, with the further keys of its entry in `run.trackers`. Its methods are called where
    the driver hears the records, one after another. After an error no more of them is called, and the run continues.
    """

    faults: tuple[type[Exception], ...] = (FAULTS_OF_USER_CODE,)
    """The errors that its methods may raise."""

    def start(self, run: TrackedRun) -> str | None:
        """Begin, or continue where `run.id` is given. Returns the id to continue with; None: it needs none.

        It is called with the first points, after ten mini-batches.
        """
        return None

    @abstractmethod
    def write(self, points: Sequence[TrackedPoint]) -> None:
        """Show these points. It is called about once a second."""

    def end(self, status: Status) -> None:
        """The run has ended like this. A resume makes a new object."""
        return None
