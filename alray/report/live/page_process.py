"""A live page of a run, from a separate process.

A thread of the command that runs would share its interpreter: with `--inline` it would slow the training itself down. A
process does not, and yields to the stages (`os.nice`). It has nothing from the run but its folder, so it cannot change
its bits. The command holds the other end of its standard input, so it knows at once when the command is gone.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import alray
from alray.core.storage.location import Location, location_of

if TYPE_CHECKING:
    from alray.report.live.board import Board

_NICE = 10
_ENDING_S = 30.0


@contextmanager
def page_process(run_dir: Location, wanted: bool, note: Callable[[str], None]) -> Iterator[None]:
    """Serve a live page of the run in the block, if it is wanted. It ends once it shows the end.

    Args:
        note: is called with its address, and with a line if it fails.
    """
    if not wanted:
        yield
        return
    from alray.report.live.server import listen

    with listen(0) as door:
        here = [str(Path(alray.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(door.socket.fileno()), str(run_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[door.socket.fileno()],
            start_new_session=True,  # Ctrl-C is for the run, whose end the page shows
            env={**os.environ, "PYTHONPATH": os.pathsep.join(here), "PYTHONSAFEPATH": "1"},
        )
        assert process.stdin is not None
        process.stdin.write(f"{door.key}\n".encode())  # not among its arguments, which every user can read
        process.stdin.flush()
        note(f"watch it at {door.address}")
    try:
        yield
    finally:
        _end(process, note)


def _end(process: subprocess.Popen[bytes], note: Callable[[str], None]) -> None:
    try:
        _, output = process.communicate(timeout=_ENDING_S)  # closes its standard input
    except subprocess.TimeoutExpired:
        process.kill()
        _, output = process.communicate()
    if process.returncode:
        reason = output.decode(errors="replace").strip().rpartition("\n")[2]
        note(f"the live page failed: {reason or f'exit code {process.returncode}'}")


def main() -> None:
    """The process of the page. Arguments: the descriptor of the socket on which it listens, and the run folder. The
    first line of standard input is the key of the page."""
    from alray.report.live.board import Board
    from alray.report.live.following import Following
    from alray.report.live.server import Door
    from alray.report.live.watch import watch

    os.nice(_NICE)
    descriptor, run_dir = int(sys.argv[1]), location_of(sys.argv[2])
    key = sys.stdin.buffer.readline().decode().strip()
    gone, board = Event(), Board()
    Thread(target=_wait_for_end, args=(gone, board), name="alray-end", daemon=True).start()
    while not (run_dir / "spec.yaml").is_file():  # it is written soon after the folder is made
        if gone.wait(0.1):
            return
    watch(Following(run_dir, gone=gone), Door(socket.socket(fileno=descriptor), key), board)


def _wait_for_end(gone: Event, board: Board) -> None:
    """The command keeps the other end of standard input open while it runs."""
    sys.stdin.buffer.read()
    gone.set()
    board.wake.set()


if __name__ == "__main__":
    main()
