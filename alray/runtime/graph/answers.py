"""What the driver knows of each stage from its answers to polls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from alray.core.errors import StageError
from alray.runtime.stage.assignment import Assignment
from alray.runtime.stage.telemetry import StageStatus


class Answers:
    """The latest status of each stage, and since when a stage has not answered. Stages go by their index.

    Times are seconds of one clock.
    """

    def __init__(self, assignments: Sequence[Assignment] = ()) -> None:
        self._latest = [
            StageStatus(each.stage, each.replica, each.start.step, 0, "starting", 0.0) for each in assignments
        ]
        self._received = [0] * len(assignments)
        self._asked_s: dict[int, float] = {}

    def ask(self, index: int, now_s: float) -> None:
        """A stage is polled, perhaps again after a poll that had no answer."""
        self._asked_s.setdefault(index, now_s)

    def take(self, index: int, status: StageStatus) -> None:
        """A stage has answered."""
        self._asked_s.pop(index, None)
        self._received[index] += len(status.reports)
        self._latest[index] = status

    def take_death(self, index: int, error: StageError, detail: str) -> None:
        """A stage is known to have died."""
        latest = self._latest[index]
        dead = StageStatus(latest.stage, latest.replica, latest.step, 0, "finished", 0.0)
        self.take(index, replace(dead, finished=True, dead=True, error=error, detail=detail))

    def statuses(self, now_s: float) -> list[StageStatus]:
        """The status of every stage. Each report is returned once. `silent_s` is the time since the first poll without
        an answer."""
        statuses = [
            status if status.finished else replace(status, silent_s=now_s - self._asked_s.get(index, now_s))
            for index, status in enumerate(self._latest)
        ]
        self._latest = [replace(status, reports=()) for status in self._latest]
        return statuses

    def received(self, index: int) -> int:
        """How many reports a stage's answers have had so far."""
        return self._received[index]

    def has_finished(self, index: int) -> bool:
        return self._latest[index].finished

    def has_died(self, index: int) -> bool:
        return self._latest[index].dead

    @property
    def all_succeeded(self) -> bool:
        """Whether there are stages, and every one has finished without an error."""
        return bool(self._latest) and all(status.finished and status.error is None for status in self._latest)
