"""Three hosts on this machine, by namespaces: each has a network, processes, a name, `/dev/shm` and `/tmp/ray` of its
own. They share the other folders, as if by NFS.

This needs the right to make namespaces, which a container seldom gives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

HEAD_PORT = 6379
_PRIVATE = (
    "hostname {name}; mount --bind {hosts} /etc/hosts; mount -t tmpfs -o size=1g tmpfs /dev/shm; "
    "mount -t tmpfs tmpfs /tmp/ray; ip link set lo up; "
    "touch {ready}; sleep infinity & wait"  # bash reaps what others leave behind
)


@dataclass
class Hosts:
    """Hosts n1, n2 and n3 with the addresses 10.77.0.1 to 10.77.0.3, joined by a switch.

    folder: where commands run. variables: of the environment of all that is started there.
    """

    folder: Path
    prefix: str = field(default_factory=lambda: f"al{os.getpid()}")
    variables: dict[str, str] = field(default_factory=dict)
    inits: dict[int, psutil.Process] = field(default_factory=dict)
    begun: list[subprocess.Popen[str]] = field(default_factory=list)

    @staticmethod
    def address(number: int) -> str:
        return f"10.77.0.{number}"

    def up(self) -> None:
        """Make the hosts. Raises CalledProcessError where this process has no right to."""
        switch = f"{self.prefix}s"
        _do(f"ip netns add {switch}")
        _do(f"ip -n {switch} link add br0 type bridge")
        _do(f"ip -n {switch} link set br0 up")
        lines = ["127.0.0.1 localhost", *(f"{self.address(number)} n{number}" for number in (1, 2, 3))]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")
        Path("/tmp/ray").mkdir(exist_ok=True)
        for number in (1, 2, 3):
            name = f"{self.prefix}h{number}"
            _do(f"ip netns add {name}")
            _do(f"ip link add eth0 netns {name} type veth peer name p{number} netns {switch}")
            _do(f"ip -n {name} addr add {self.address(number)}/24 dev eth0")
            _do(f"ip -n {name} link set eth0 up")
            _do(f"ip -n {switch} link set p{number} master br0 up")
            self.boot(number)

    def boot(self, number: int) -> None:
        """Start the first process of a host."""
        ready = self.folder / f"n{number}.ready"
        ready.unlink(missing_ok=True)
        script = _PRIVATE.format(name=f"n{number}", hosts=self.folder / "hosts", ready=ready)
        namespace = f"/var/run/netns/{self.prefix}h{number}"
        outer = subprocess.Popen(
            [
                *("nsenter", f"--net={namespace}", "unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts"),
                *("--mount-proc", "--", "bash", "-ec", script),
            ],
            stderr=subprocess.DEVNULL,
        )
        end_s = time.monotonic() + 10
        while not ready.exists():
            if outer.poll() is not None or time.monotonic() > end_s:
                raise subprocess.CalledProcessError(outer.poll() or 1, "unshare --pid --mount --uts")
            time.sleep(0.05)
        (self.inits[number],) = psutil.Process(outer.pid).children()

    def on(self, number: int, *words: str) -> list[str]:
        """The command that runs `words` on a host, in the folder of the specs."""
        enter = ["nsenter", "-t", str(self.inits[number].pid), "-n", "-p", "-m", "-u", "--"]
        # A process that enters a host begins at its root.
        return [*enter, "bash", "-c", 'cd "$0" && exec "$@"', str(self.folder), *words]

    def ray(self, number: int, cpus: int, *words: str) -> None:
        """Start Ray on a host: the head on the first one."""
        where = ["--head", f"--port={HEAD_PORT}"] if number == 1 else [f"--address={self.address(1)}:{HEAD_PORT}"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *where, *words]
        command += [
            f"--node-ip-address={self.address(number)}",
            f"--num-cpus={cpus}",
            "--object-store-memory=100000000",
        ]
        subprocess.run(self.on(number, *command), check=True, stdout=subprocess.DEVNULL, env=self.environment())

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        return kept | {
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            "RAY_raylet_start_wait_time_s": "120",  # on a busy machine
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            **self.variables,
        }

    def start(self, number: int, *words: str) -> subprocess.Popen[str]:
        """Begin a command of alray on a host."""
        command = self.on(number, sys.executable, "-m", "alray", *words)
        return subprocess.Popen(
            command, text=True, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def serve(self, number: int, *words: str, environment: dict[str, str]) -> subprocess.Popen[str]:
        """Begin what runs until the hosts go down. What it prints is kept in the folder."""
        log = self.folder / f"{Path(words[0]).name}-{number}.log"
        with log.open("ab") as file:
            command, nothing = self.on(number, *words), subprocess.DEVNULL
            self.begun.append(
                subprocess.Popen(command, env=environment, text=True, stdin=nothing, stdout=file, stderr=file)
            )
        return self.begun[-1]

    def stop(self, process: subprocess.Popen[str]) -> None:
        """Ask what was started with `serve` to end, with all that it began."""
        for inner in psutil.Process(process.pid).children(recursive=True):
            inner.terminate()
        process.wait(10)

    def running(self, number: int) -> set[str]:
        """The names of the processes of a host, without those of the host itself."""
        init = self.inits[number]
        own = {init.pid, *(child.pid for child in init.children() if child.name() == "sleep")}
        here = Path(f"/proc/{init.pid}/ns/pid").readlink()
        found = set()
        for process in psutil.process_iter():
            with suppress(OSError, psutil.NoSuchProcess):
                if process.pid not in own and Path(f"/proc/{process.pid}/ns/pid").readlink() == here:
                    found.add(process.name())
        return found

    def default_route(self, number: int) -> None:
        """Let a host believe that it reaches the internet. Ray looks there for the address of a head."""
        _do(f"ip -n {self.prefix}h{number} route add default dev eth0")

    def link(self, number: int, state: str) -> None:
        """Take the cable of a host out (`down`), or put it in again (`up`)."""
        _do(f"ip -n {self.prefix}s link set p{number} {state}")

    @contextmanager
    def far(self, mbit_per_s: float, delay_ms: float) -> Iterator[None]:
        """Have the first two hosts reach each other over a link of this bandwidth and delay, one way."""
        names = [f"{self.prefix}h{number}" for number in (1, 2)]
        command = [sys.executable, "-m", "tests.cluster.far_link", *names, str(mbit_per_s), str(delay_ms)]
        link = subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True)
        try:
            assert link.stdout is not None and link.stdout.readline() == "ready\n"
            for number, name in enumerate(names, start=1):
                own, other = self.address(number), self.address(3 - number)
                _do(f"ip -n {name} route add {other}/32 dev far src {own}")
            yield
        finally:
            link.kill()  # the interfaces and their routes go with it
            link.communicate()

    def switch_off(self, number: int) -> None:
        """End all processes of a host at once."""
        self.inits.pop(number).kill()

    def down(self) -> None:
        for number in list(self.inits):
            self.switch_off(number)
        for process in self.begun:
            process.wait(10)  # it has ended with its host
        for name in (f"{self.prefix}s", *(f"{self.prefix}h{number}" for number in (1, 2, 3))):
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)


def _do(command: str) -> None:
    subprocess.run(command.split(), check=True, stderr=subprocess.PIPE)


def skip_without(*tools: str) -> None:
    """Skip the test where a program is missing."""
    missing = [tool for tool in tools if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; `make cluster-test` installs them where it is root")


def until(reached: Callable[[], bool], instead: Callable[[], object], patience_s: float) -> None:
    """Wait until it is so. instead: says how it is when the patience has ended."""
    end_s = time.monotonic() + patience_s
    while not reached():
        assert time.monotonic() < end_s, instead()
        time.sleep(0.5)


@contextmanager
def three_hosts(folder: Path) -> Iterator[Hosts]:
    """The hosts, until the block is left. Skips the test where they cannot be made."""
    skip_without("ip", "nsenter", "unshare")
    hosts = Hosts(folder)
    try:
        try:
            hosts.up()
        except subprocess.CalledProcessError as error:
            said = (error.stderr or b"").decode().strip() or f"exit code {error.returncode}"
            pytest.skip(f"no right to make network namespaces here: {error.cmd}: {said}")
        yield hosts
    finally:
        hosts.down()
