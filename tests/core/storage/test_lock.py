"""One process at a time works on a folder, and a process that was killed holds nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from alray.core.errors import RequestError
from alray.core.storage import lock
from alray.core.storage.lock import locked

HOLDING = """
import os, subprocess, sys, time
from pathlib import Path
from alray.core.storage.lock import locked

with locked(Path(sys.argv[1]), print):
    child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
    fork = os.fork()
    if fork:
        print(child.pid, fork, flush=True)
    time.sleep(60)
"""


def test_a_lock_ends_with_its_process_and_not_with_what_that_started(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDING, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        started = [int(word) for word in holder.stdout.readline().split()]
        try:
            with pytest.raises(RequestError) as refused, locked(tmp_path, print):
                pass
            who = f"process {holder.pid} on {os.uname().nodename}"
            assert str(refused.value) == (
                f"{tmp_path}: another process works on this run: {who}; wait until it has ended, or stop it"
            )
            holder.kill()
            holder.wait()
            with locked(tmp_path, print):
                assert (tmp_path / ".lock").read_text() == f"process {os.getpid()} on {os.uname().nodename}"
        finally:
            for process in started:
                os.kill(process, signal.SIGKILL)


def test_a_link_that_is_planted_after_the_check_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("as it was")
    monkeypatch.setattr(lock, "require_no_links", lambda folder: (folder / ".lock").symlink_to(precious))
    with pytest.raises(OSError, match="symbolic links"), locked(tmp_path, print):
        pass
    assert precious.read_text() == "as it was"


def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(file: object, operation: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", none)
    notes: list[str] = []
    with locked(tmp_path, notes.append):
        assert "is on a file system without locks" in notes[0]
