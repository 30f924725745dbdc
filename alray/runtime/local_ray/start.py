"""The Ray that a command starts on this machine: closed to everybody else, and gone when it ends."""

from __future__ import annotations

import math
import os
import resource
import secrets
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alray.core.environment import environment
from alray.core.errors import RequestError, RunError
from alray.core.signal_mask import blocked
from alray.core.system_errors import require_current_folder
from alray.data.worker_names import OWNER
from alray.runtime.device.machine_memory import machine_memory_bytes
from alray.runtime.local_ray import reaper
from alray.runtime.local_ray.head import end_leading_processes, is_lost, ours
from alray.runtime.local_ray.ray_init import import_ray, init_ray, rays_environment, read_authentication_again

_STARTING_S = 55.0
"""Ray itself gives up after a minute, and ends this process."""
_HOW_TO_START = "try again when the machine is less busy, look at it with `alray doctor`, or run with --inline"
_ENDING_S = 20.0
_was_lost = threading.Event()
_ADDRESS_SPACE = 8e9
"""Bytes that a process maps besides Ray's object store: the libraries of torch and Ray, and the stacks of threads."""
_RAYS_SHARE = 0.3
"""Share of the memory that Ray's object store takes by default. Every process maps all of it."""


def require_ray_can_start() -> None:
    """Raise RequestError if Ray would lack address space here: it would crash in the middle of a run."""
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    needed = _ADDRESS_SPACE + _RAYS_SHARE * machine_memory_bytes()
    if space != resource.RLIM_INFINITY and space < needed:
        raise RequestError(
            f"too little address space for Ray: `ulimit -v` allows {space // 1024:,} kB",
            hint=f"allow at least {needed / 1024:,.0f} kB, such as `ulimit -v unlimited`, or run with --inline",
        )


@contextmanager
def local_ray(bundles: Sequence[Mapping[str, float]]) -> Iterator[tuple[str, ...]]:
    """Start a Ray that has room for these bundles, and shut it down after the block. Gives warnings for the user.

    Only this user's processes that inherit its token can use it, and every socket of it is on the loopback interface.
    The environment of this process is as before when the block has ended.
    Raises RequestError if Ray cannot keep its files here, and RunError if it does not start.
    """
    require_current_folder()
    import_ray()
    import ray

    cores = len(os.sched_getaffinity(0))
    wanted = sum(bundle.get("CPU", 0.0) for bundle in bundles)
    with private_folder() as folder, closed_to_others(), ours():
        # Linux ends Ray's processes with the thread that started them: this thread lives as long as they do.
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="alray-local-ray")
        starting = thread.submit(_start, max(cores, math.ceil(wanted)), folder / "r")
        try:
            _wait_until_started(starting)
            warning = (
                f"{len(bundles)} stages ask for {wanted:g} processors and this machine has {cores}: they share them"
            )
            yield (warning,) if wanted > cores else ()
        finally:
            has_started = starting.done()
            if not has_started or is_lost():
                _end(folder)
            if has_started:
                ending = thread.submit(ray.shutdown)
                if wait([ending], timeout=_ENDING_S).not_done:  # for an answer of a process that is stopped
                    _end(folder)
                ending.result()
            thread.shutdown(wait=has_started)


def _end(folder: Path) -> None:
    """End what is left of the Ray in a folder: `shutdown` would wait for it."""
    end_leading_processes()
    reaper.end_processes(str(folder))
    _was_lost.set()


def was_lost() -> bool:
    """Whether this process has started a Ray that was lost before its end."""
    return _was_lost.is_set()


def _start(processors: int, folder: Path) -> None:
    """Start a Ray that keeps its files in a folder. Raises RunError if it does not start."""
    # When a terminal is closed, its shell sends SIGHUP to Ray's processes too. They must continue until the run has its
    # checkpoint.
    with blocked(signal.SIGHUP):
        try:
            with _few_processes():
                init_ray(address="local", num_cpus=processors, _temp_dir=str(folder))
        except Exception as error:  # Ray raises plain Exceptions, such as for a node that takes too long
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise RunError(f"Ray did not start on this machine: {lines[0]}", hint=_HOW_TO_START) from error


def _wait_until_started(starting: Future[None]) -> None:
    """Wait for `ray.init`.

    Ray's C++ code tries for one to three minutes to connect to a Ray that is gone or silent, and then ends this process
    with Ray's message. No exception reaches it, so it stays behind in its thread.

    Raises:
        RunError: if `ray.init` does, or if it takes too long.
    """
    try:
        wait([starting], timeout=_STARTING_S)
    except KeyboardInterrupt:
        wait([starting], timeout=_STARTING_S)  # what has half started cannot be shut down
        raise
    if not starting.done():
        raise RunError(f"Ray did not start on this machine within {_STARTING_S:.0f} s", hint=_HOW_TO_START)
    starting.result()


@contextmanager
def _few_processes() -> Iterator[None]:
    """A Ray that is started in the block lacks the processes that nobody asks here: the dashboard, for whose start
    `ray.init` waits, the autoscaler, and one that looks into all logs ten times a second."""
    from alray.core.compat import ray_constants, ray_node

    class FewProcesses(ray_node.Node):
        def start_api_server(self, **_: Any) -> None:
            self._webui_url = ""
            # Ray's agent would ask for it every second, and sends nothing there.
            place = ray_constants.DASHBOARD_ADDRESS.encode(), b"127.0.0.1:0", True
            self.get_gcs_client().internal_kv_put(*place, ray_constants.KV_NAMESPACE_DASHBOARD)

        def start_log_monitor(self) -> None:
            return

        def start_monitor(self) -> None:
            return

    before, ray_node.Node = ray_node.Node, FewProcesses
    try:
        yield
    finally:
        ray_node.Node = before


_NAME_BYTES = 2
_LONGEST_SOCKET = 107
"""Characters that the path of a Unix socket may have."""
_BELOW = "/ray-ab12/r/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"
"""The longest path of a socket of Ray, below the folder for temporary files."""


@contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder that only this user can enter. Ray lets everybody write to its own folder, which lies in this one.

    The folder is deleted when the block ends or this process is gone, and what still runs of that Ray is ended.
    """
    parent = Path(os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp").absolute()
    if not str(parent).isascii():
        raise RequestError(
            f"Ray takes no folder for temporary files whose name has letters beyond ASCII: {parent}",
            hint="set RAY_TMPDIR to a folder without them, or run with --inline",
        )
    if len(f"{parent}{_BELOW}") > _LONGEST_SOCKET:
        raise RequestError(
            f"the name of the folder for temporary files is too long for Ray's sockets: {parent}",
            hint="set RAY_TMPDIR to a folder with a shorter name, or run with --inline",
        )
    try:
        parent.mkdir(parents=True, exist_ok=True)
        while (folder := parent / f"ray-{secrets.token_hex(_NAME_BYTES)}").exists():
            pass
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise RequestError(
            f"Ray cannot keep its files in {parent}: {error.strerror}",
            hint="set RAY_TMPDIR to a folder that can be written, or run with --inline",
        ) from error
    process = reaper.begin(folder)
    try:
        with environment(**{OWNER: str(folder)}):
            yield folder
    finally:
        reaper.finish(process, folder)


@contextmanager
def closed_to_others() -> Iterator[None]:
    """Make a Ray that is started in the block refuse everybody who lacks its token, and listen on 127.0.0.1 alone.

    What the user has set in the environment stays. The token is in no file and on no command line.
    """
    from alray.core.compat import ray_constants

    on_other_addresses = ray_constants.ENABLE_RAY_CLUSTER
    try:
        with rays_environment():
            os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = "0"
            os.environ.setdefault("RAY_worker_niceness", "0")  # by default 15: the stages would run behind all others
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            if os.environ["RAY_AUTH_MODE"].lower() == "token" and not _has_token():
                os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
            # Ray reads this variable when it is imported, which may have been before.
            ray_constants.ENABLE_RAY_CLUSTER = False
            read_authentication_again()
            yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = on_other_addresses
        read_authentication_again()


def _has_token() -> bool:
    return any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
