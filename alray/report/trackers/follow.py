"""Gives a run's points to TensorBoard and to its trackers, which are called where the driver hears the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from alray.config.sections.spec import Spec
from alray.config.user_code import named_error
from alray.core.run_folder.records import EventRecord, Record, Status, write_json
from alray.core.run_folder.store import run_name
from alray.core.storage.json_file import read_json
from alray.core.storage.location import Location
from alray.report.flat import flat, sections_and_lists
from alray.report.trackers.points import Points
from alray.report.trackers.tensorboard import TensorBoard
from alray.report.trackers.tracker import TrackedPoint, TrackedRun, Tracker

_IDS = "trackers.json"
_WITHOUT_IDS = "restore it, or delete it: the run is then tracked as a new one"


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

    def keep(kind: str, number: str) -> None:
        if ids.get(kind) != number:
            ids[kind] = number  # those of trackers that a resume left out stay
            write_json(file, ids)

    following = [
        _Following(kind, tracker, TrackedRun(name, str(run_dir), parameters, of, ids.get(kind)), keep, note)
        for kind, tracker in trackers.items()
    ]
    # On object storage, where no file grows, the report of the run writes it from the records.
    if pages and isinstance(run_dir, Path):
        board = TrackedRun(name, str(run_dir), parameters, of, None)
        following.insert(0, _Following("tensorboard", TensorBoard(run_dir / "tensorboard"), board, keep, note))
    watch = _RunPoints(following)
    try:
        yield watch.take
    except SystemExit:  # so the trial scheduler of a study ends a trial
        watch.status = "interrupted"
        raise
    finally:
        watch.close()


class _RunPoints:
    """Gives the points of a run to its trackers."""

    def __init__(self, following: Sequence[_Following]) -> None:
        self._following = following
        self._points = Points()
        self.status: Status = "failed"  # if no event tells how the run ended

    def take(self, record: Record) -> None:
        if isinstance(record, EventRecord) and record.event in ("finished", "interrupted", "failed"):
            self.status = record.event
        self._give(self._points.take(record))

    def close(self) -> None:
        self._give(self._points.rest())
        for each in self._following:
            each.end(self.status)

    def _give(self, points: Sequence[TrackedPoint]) -> None:
        for each in self._following if points else ():
            each.give(points)


class _Following:
    """One tracker, which begins with the first points, and hears no more after an error."""

    def __init__(
        self,
        kind: str,
        tracker: Tracker,
        run: TrackedRun,
        keep: Callable[[str, str], None],
        note: Callable[[str], None],
    ) -> None:
        self._kind = kind
        self._tracker = tracker
        self._run = run
        self._keep = keep
        self._note = note
        self._follows = False
        self._failed = False

    def give(self, points: Sequence[TrackedPoint]) -> None:
        if not self._follows and not self._failed:
            with self._noting("start"):
                number = self._tracker.start(self._run)
                self._follows = True
                if number is not None:
                    self._keep(self._kind, number)
        if self._follows:
            with self._noting("write"):
                self._tracker.write(points)

    def end(self, status: Status) -> None:
        if self._follows:
            with self._noting("end"):
                self._tracker.end(status)

    @contextmanager
    def _noting(self, doing: str) -> Iterator[None]:
        try:
            yield
        except self._tracker.faults as fault:
            self._follows, self._failed = False, True
            error = named_error(fault, f"tracker `{self._kind}`", doing, key="run.trackers")
            self._note(f"{error}; it gets nothing more of this run; records.jsonl has everything")
