"""A process that watches the command that started a Ray. When the command is gone, it ends what is left of that Ray.

A command that ends by itself has shut its Ray down. A command that was killed has not: Ray's agents then live for
another minute, and its folder stays for ever. This process notices the end of the command because the pipe that is its
standard input closes. It imports only the standard library, so it starts in some hundredths of a second.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

_ENDING_S = 10.0
_LOOKING_S = 0.05
_SEMAPHORES = Path("/dev/shm")


def begin(folder: Path) -> subprocess.Popen[bytes]:
    """Start the process for the Ray that keeps its files in this folder. Ctrl-C in a terminal does not reach it."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(__file__)), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Let the process do its work now, and wait for it. Call this when Ray has been shut down.

    The work is done here if the process was killed or is stopped.
    """
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(timeout=2 * _ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.returncode != 0:
        clean_up(str(folder))


def clean_up(folder: str) -> None:
    """Kill what is left of the Ray in this folder, and delete the folder and the semaphores of its stages."""
    end_processes(folder)
    for semaphore in _SEMAPHORES.glob(f"sem.{Path(folder).name}-*"):  # as `alray.data.worker_names` calls them
        semaphore.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def end_processes(folder: str) -> None:
    """Kill the processes of the Ray in this folder, and wait until they are gone."""
    until_s = time.monotonic() + _ENDING_S
    while (left := processes_of(folder)) and time.monotonic() < until_s:
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(_LOOKING_S)


def processes_of(folder: str) -> list[int]:
    """The processes of this user that belong to the Ray in this folder.

    Ray's programs have the folder in their arguments. Workers and agents have replaced their arguments by a title,
    `ray::...`, and write their logs to the folder.
    """
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if entry.stat().st_uid != os.getuid():
                    continue
                arguments = Path(entry.path, "cmdline").read_bytes()
                named = b"=" + os.fsencode(folder) in arguments
                if named or (arguments.startswith(b"ray::") and _has_open(entry.path, folder)):
                    found.append(int(entry.name))
            except OSError:  # it has ended meanwhile
                continue
    return found


def _has_open(process: str, folder: str) -> bool:
    """Whether a process has a file of this folder open.

    Args:
        process: its folder in /proc.
    """
    for descriptor in os.scandir(Path(process, "fd")):
        try:
            if Path(descriptor.path).readlink().is_relative_to(folder):
                return True
        except OSError:  # it was closed meanwhile
            continue
    return False


def main(folder: str) -> None:
    """Wait until the command has ended; then kill the processes of its Ray, and delete the folder."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # whoever stops the command may stop its children too
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    clean_up(folder)


if __name__ == "__main__":
    main(sys.argv[1])
