"""Who watches a run, and who may stop it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from alray.core.errors import AlrayError
    from alray.core.run_folder.records import Record
    from alray.core.storage.location import Location
    from alray.planning.prediction.plan import Plan
    from alray.runtime.graph.graph import Graph
    from alray.runtime.stage.telemetry import StageStatus


class Observer:
    """Shows a run to the user while it is running. What a class leaves out shows nothing."""

    def statuses(self, statuses: Sequence[StageStatus]) -> None:
        """Called with the answers of every poll."""

    def planned(self, plan: Plan) -> None:
        """Called with the plan before anything runs."""

    def starting(self, run_dir: Location) -> None:
        """Called with the run folder after that, still before anything runs."""

    def started(self, graph: Graph) -> None:
        """Called with the stages of each attempt, once they have started."""

    def record(self, record: Record) -> None:
        """Called with every record as it is written."""

    def doing(self, what: str) -> None:
        """Called when the run turns to something that takes a while, such as "opening the data"."""

    def note(self, message: str) -> None:
        """Called with one line about something that happened."""


class StopRequests(Protocol):
    """Who asked to stop a run: the user, or a callback."""

    @property
    def count(self) -> int:
        """How often: once for after this mini-batch, twice for at once."""

    @property
    def reason(self) -> str:
        """Who asked, as in "stopped on request"."""

    @property
    def error(self) -> AlrayError | None:
        """What went wrong with who asked: the run then ends as failed."""
