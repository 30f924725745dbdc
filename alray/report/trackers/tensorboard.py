"""The run as TensorBoard event files, written while it is running."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from alray.core.run_folder.records import Record, Status
from alray.core.storage.location import Location, local_folder_for
from alray.core.storage.objects import ObjectPath
from alray.report.trackers.points import Points
from alray.report.trackers.tracker import TrackedPoint, Tracker

if TYPE_CHECKING:
    from tensorboardX.event_file_writer import EventsWriter

_EVENT_FILES = "events.out.tfevents.*"


class TensorBoard(Tracker):
    """Writes points as events.

    The file is made with the first points, ten mini-batches after the start, so that importing tensorboardX does not
    delay them. Each attempt of a run that is resumed writes a file of its own.
    """

    faults = ()  # a full disk ends the run, as everywhere in its folder

    def __init__(self, directory: Path) -> None:
        """
        Args:
            directory: made with the first file.
        """
        self._directory = directory
        self._writer: EventsWriter | None = None

    def write(self, points: Sequence[TrackedPoint]) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.proto.summary_pb2 import Summary

        if self._writer is None:
            self._directory.mkdir(exist_ok=True)
            # It writes in this thread. tensorboardX's SummaryWriter would start another thread, with a queue.
            self._writer = EventsWriter(str(self._directory / "events"))
        for point in points:
            if point.scalars:
                values = [Summary.Value(tag=tag, simple_value=value) for tag, value in point.scalars.items()]
                event = Event(wall_time=point.wall_s, step=point.step, summary=Summary(value=values))
            else:  # a restart, after which TensorBoard forgets all later steps
                restart = SessionLog(status=SessionLog.START)
                event = Event(wall_time=point.wall_s, step=point.step + 1, session_log=restart)
            self._writer.write_event(event)
        self._writer.flush()

    def end(self, status: Status) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def write_tensorboard(records: Sequence[Record], directory: Location) -> None:
    """Write the event file of a run that wrote none while it was running. On object storage, where none does, what an
    earlier report wrote is replaced.

    Args:
        records: those without lost work.
    """
    if isinstance(directory, ObjectPath):
        directory.remove()
    elif any(directory.glob(_EVENT_FILES)):
        return
    points = Points()
    whole = [point for record in records for point in points.take(record)] + list(points.rest())
    if whole:
        with local_folder_for(directory) as folder:
            board = TensorBoard(folder)
            board.write(whole)
            board.end("finished")
