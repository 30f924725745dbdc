"""Gives a run's points to its trackers, each in a separate thread, so that no server holds up the run.

MLflow and W&B have queues too. They would not do: to start and to end a run they wait for the server, and what
goes wrong in MLflow's queue is only logged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from alray.config.sections.spec import Spec
from alray.config.user_code import named_error
from alray.core.errors import UserCodeError
from alray.core.run_folder.records import EventRecord, Record, Status, write_json
from alray.core.run_folder.store import run_name
from alray.core.storage.json_file import read_json
from alray.core.storage.location import Location
from alray.report.flat import flat, sections_and_lists
from alray.report.trackers.points import Points
from alray.report.trackers.tensorboard import TensorBoard
from alray.report.trackers.tracker import TrackedPoint, TrackedRun, Tracker

_ENDING_S = 30.0  # how long the end of a run waits for its trackers
_IDS = "trackers.json"
_WITHOUT_IDS = "restore it, or delete it: the run is then tracked as a new one"
_COMPLETE = "records.jsonl has everything"


@contextmanager
def watched(
    run_dir: Location,
    spec: Spec,
    trackers: Mapping[str, Tracker],
    *,
    pages: bool,
    study: Path | None,
    note: Callable[[str], None],
) -> Iterator[Callable[[Record], None]]:
    """An observer of a run's records that shows the run while it is running. It is complete when the block ends.

    Args:
        pages: whether `tensorboard/` is written, on a disk.
        study: the folder of the study, if the run is a trial of one.
        note: is called with a line about each tracker that failed; the records have everything.
    """
    if not pages and not trackers:
        yield lambda record: None
        return
    file = run_dir / _IDS
    ids = read_json(file, dict[str, str], _WITHOUT_IDS) if file.is_file() else {}
    name, of = run_name(run_dir, study), study.name if study is not None else None
    parameters = dict(flat(spec.model_dump(mode="json"), sections_and_lists))
    following = [
        _TrackerThread(kind, tracker, TrackedRun(name, str(run_dir), parameters, of, ids.get(kind)))
        for kind, tracker in trackers.items()
    ]
    # On object storage, where no file grows, the report of the run writes it from the records.
    board = TensorBoard(run_dir / "tensorboard") if pages and isinstance(run_dir, Path) else None
    watch = _RunPoints(following, board, _Ids(file, ids), note)
    try:
        yield watch.take
    except SystemExit:  # so the trial scheduler of a study ends a trial
        watch.status = "interrupted"
        raise
    finally:
        watch.close()


class _RunPoints:
    """Gives the points of a run to TensorBoard and to its trackers."""

    def __init__(
        self,
        following: Sequence[_TrackerThread],
        board: TensorBoard | None,
        ids: _Ids,
        note: Callable[[str], None],
    ) -> None:
        self._following = following
        self._board = board
        self._ids = ids
        self._note = note
        self._points = Points()
        self.status: Status = "failed"  # if no event tells how the run ended
        self._reported: set[str] = set()

    def take(self, record: Record) -> None:
        if isinstance(record, EventRecord) and record.event in ("finished", "interrupted", "failed"):
            self.status = record.event
        self._give(self._points.take(record))
        self._hear()

    def close(self) -> None:
        """Wait a while until the trackers have everything."""
        self._give(self._points.rest())
        if self._board is not None:
            self._board.end(self.status)
        until_s = time.monotonic() + _ENDING_S
        for each in self._following:
            each.end(self.status)
        for each in self._following:
            if not each.wait(until_s - time.monotonic()):
                self._note(f"tracker `{each.kind}` did not take everything within {_ENDING_S:.0f} s: {_COMPLETE}")
        self._hear()

    def _give(self, points: Sequence[TrackedPoint]) -> None:
        if points and self._board is not None:
            self._board.write(points)
        for each in self._following if points else ():
            each.give(points)

    def _hear(self) -> None:
        """Keep the ids that came, and tell of errors."""
        self._ids.keep({each.kind: each.id for each in self._following if each.id is not None})
        for each in self._following:
            if each.fault is not None and each.kind not in self._reported:
                self._reported.add(each.kind)
                self._note(f"{each.fault}; it gets nothing more of this run; {_COMPLETE}")


@dataclass
class _Ids:
    """The ids under which a resume continues, by kind of tracker, and their file."""

    file: Location
    known: dict[str, str]

    def keep(self, ids: Mapping[str, str]) -> None:
        after = {**self.known, **ids}  # those of trackers that a resume left out stay
        if after != self.known:
            self.known = after
            write_json(self.file, after)


class _TrackerThread:
    """One tracker and the thread in which it is called. The thread begins with the first points."""

    def __init__(self, kind: str, tracker: Tracker, run: TrackedRun) -> None:
        self.kind = kind
        self.id = run.id
        self.fault: UserCodeError | None = None
        self._tracker = tracker
        self._run = run
        self._given: SimpleQueue[Sequence[TrackedPoint] | Status] = SimpleQueue()
        # A thread that waits for a server must not keep the command from ending.
        self._thread = Thread(target=self._work, name=f"alray-{kind}", daemon=True)

    def give(self, points: Sequence[TrackedPoint]) -> None:
        if self._thread.ident is None:
            self._thread.start()
        if self.fault is None:
            self._given.put(points)

    def end(self, status: Status) -> None:
        self._given.put(status)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the tracker has everything, or has failed; return whether that is so."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    def _work(self) -> None:
        doing = "start"
        try:
            self.id = self._tracker.start(self._run)
            doing = "write"
            while not isinstance(given := self._given.get(), str):
                self._tracker.write(given)
            doing = "end"
            self._tracker.end(given)
        except self._tracker.faults as fault:
            self.fault = named_error(fault, f"tracker `{self.kind}`", doing, key="run.trackers")
