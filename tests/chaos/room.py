"""A separate machine for one run, made of namespaces: processes, a network, a name, `/dev/shm` and a small disk.

What is left in it was left by the run. What happens to it happens to no other program. The right to make namespaces is
needed, which a container seldom gives.
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

DISK_BYTES = 48 << 20
_TORCHS_CACHE = f"torchinductor_{getpass.getuser()}"
"""A folder in which torch keeps what it compiles, for all programs of a user; empty where nothing is compiled."""
_REPOSITORY = Path(__file__).parents[2]
_AS_ROOT = () if os.geteuid() == 0 else ("--map-root-user",)
_BEGIN = (
    "mount --bind {folder} /mnt; mount -t tmpfs -o size={disk} tmpfs /mnt/disk; mount -t tmpfs -o size=1g tmpfs "
    "/dev/shm; hostname localhost; ip link set lo up; touch /mnt/ready; read -r || true"
)
"""What bash does in a room. It reaps orphans, and ends with the process that holds the other end of its input."""


class NoRoom(Exception):
    """This machine does not let this process make namespaces."""


class Room:
    """Processes that are started here see `folder` as /mnt, with a disk of `DISK_BYTES` at /mnt/disk.

    Temporary files, and with them Ray's session folders, come into /mnt/tmp.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("disk", "tmp"):
            (folder / name).mkdir(parents=True)
        script = _BEGIN.format(folder=folder, disk=DISK_BYTES)
        words = ("unshare", *_AS_ROOT, "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child")
        try:
            self._outer = subprocess.Popen(
                [*words, "--mount-proc", "bash", "-ec", script],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except FileNotFoundError as error:
            raise NoRoom(str(error)) from error
        end_s = time.monotonic() + 30
        while not (folder / "ready").exists():
            if self._outer.poll() is not None or time.monotonic() > end_s:
                self._outer.kill()
                raise NoRoom(self._outer.communicate()[1].strip() or "unshare does not answer")
            time.sleep(0.02)
        (self._init,) = psutil.Process(self._outer.pid).children()
        self._namespace = Path(f"/proc/{self._init.pid}/ns/pid").readlink()
        self.disk = Path(f"/proc/{self._init.pid}/root/mnt/disk")

    def __enter__(self) -> Room:
        return self

    def __exit__(self, *_: object) -> None:
        """End every process of the room."""
        self._outer.kill()
        self._outer.communicate()

    def _inside(self, *words: str) -> list[str]:
        user = ("-U", "--preserve-credentials") if _AS_ROOT else ()
        return ["nsenter", "-t", str(self._init.pid), *user, "-n", "-p", "-m", "-u", "-i", "--wdns=/mnt", "--", *words]

    def alray(self, *words: str, output: Path) -> tuple[subprocess.Popen[bytes], psutil.Process | None]:
        """Begin a command of alray; output: what it prints goes to files of this name, with .out and .err added.

        Returns the process to wait for, whose exit code is that of the command, and the process of alray itself; None
        if it has ended at once.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "ALRAY_", "TMPDIR"))}
        variables = {"TMPDIR": "/mnt/tmp", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_REPOSITORY)}
        with output.with_suffix(".out").open("wb") as out, output.with_suffix(".err").open("wb") as err:
            outer = subprocess.Popen(
                self._inside(sys.executable, "-m", "alray", *words),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=kept | variables,
            )
        while outer.poll() is None:
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(outer.pid).children():
                    return outer, child
        return outer, None

    def network(self, state: str) -> None:
        """Drop everything that its processes send each other through sockets (`down`), or no more (`up`)."""
        subprocess.run(self._inside("ip", "link", "set", "lo", state), check=True)

    def processes(self) -> list[psutil.Process]:
        """What runs in the room, without what makes the room."""
        found = []
        for process in psutil.process_iter():
            with suppress(OSError, psutil.NoSuchProcess):
                inside = Path(f"/proc/{process.pid}/ns/pid").readlink() == self._namespace
                if inside and process.pid != self._init.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def left(self) -> dict[str, list[str]]:
        """What is left in the room: processes, names in /dev/shm, Ray's folders, and other temporary files."""
        shared, temporary = Path(f"/proc/{self._init.pid}/root/dev/shm"), self.folder / "tmp"
        of_ray = [each.name for each in temporary.iterdir() if each.name.startswith("ray")]
        return {
            "processes": [title_of(process) for process in self.processes()],
            "/dev/shm": [each.name for each in shared.iterdir()],
            "folders of Ray": of_ray,
            "/tmp": [each.name for each in temporary.iterdir() if each.name not in (*of_ray, _TORCHS_CACHE)],
        }

    def clear(self) -> None:
        """Remove all that `left` finds, so that it is counted once."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(self.processes(), timeout=5)
        for each in Path(f"/proc/{self._init.pid}/root/dev/shm").iterdir():
            each.unlink()
        for each in (self.folder / "tmp").iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()


def title_of(process: psutil.Process) -> str:
    """The name that a process goes by: Ray's name for it, a program, or the file that Python runs."""
    try:
        words = process.cmdline()
    except psutil.NoSuchProcess:
        return ""
    if not words or words[0].startswith("ray::"):
        return process.name() if not words else words[0]
    script = next((word for word in words[1:] if word.endswith(".py")), None)
    if script is not None:
        return "/".join(Path(script).parts[-2:])
    return words[-1][:60] if "multiprocessing" in words[-1] else Path(words[0]).name
