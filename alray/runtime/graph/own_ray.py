"""The Ray that a command starts for itself on this machine: closed to everybody else, and gone when it ends."""

from __future__ import annotations

import logging
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from alray.core.errors import RequestError, RunError, StageError
from alray.core.import_path import children_import_safely, folders_before_python
from alray.core.system_errors import file_limit, require_current_folder
from alray.data.worker_names import OWNER
from alray.runtime.graph import reaper

Bundle = dict[str, float]

_QUIET: Mapping[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "alray"}
_LEADING = ("gcs_server", "raylet")
_ANSWERING_S = 10.0
_LOOKING_S = 1.0
_SILENT_S = 20.0
_LONGEST_LOOK_S = _ANSWERING_S + 2 * _LOOKING_S  # more has passed where this process was stopped too
_UNSEEN_S = 40.0  # below the minute after which Ray's C++ code ends this process
_RAYLET_PID = "RAY_RAYLET_PID"
_TRIES = 2  # of 40 s each
_NAME_BYTES = 2
_lost: list[Path] = []  # the folders of the Rays of this process that were lost
_seen = threading.Event()  # somebody has asked and knows that this Ray is lost
_LONGEST_SOCKET = 107
"""Characters that the path of a Unix socket may have."""
_BELOW = "/ray-ab12/r/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"
"""The longest path of a socket of Ray, below the folder for temporary files."""


def import_ray() -> None:
    """Import Ray. Call this before anything of Ray is imported in the process of a command.

    Ray's C++ code reads the process number of its raylet once, from the environment. Without one, it takes the parent
    of this process for its raylet. If the parent is process 1, as in a container or after `nohup`, Ray concludes that
    the raylet is dead, and ends this process without a word at the first call that fails. Here it reads the number of
    this process instead.
    """
    given = os.environ.get(_RAYLET_PID)
    os.environ[_RAYLET_PID] = given or str(os.getpid())
    try:
        from alray.core.compat import RayConfig

        RayConfig.ray_cookie()  # the first question makes Ray read its environment
    finally:
        if given is None:
            del os.environ[_RAYLET_PID]


def init_ray(**arguments: Any) -> None:
    """Call `ray.init` with these arguments and those that every Ray gets that alray connects to.

    Its workers look for modules where this process does. By default Ray adds the current folder in front, and so runs
    the `numpy.py` of whoever made that folder.
    """
    import ray

    from alray.core.compat import JobConfig

    class SamePath(JobConfig):
        def _runtime_env_has_working_dir(self) -> bool:
            """Ray adds neither the script's folder nor the current one to a job with a working directory."""
            return True

    # A worker puts each of them in front.
    config = SamePath(_py_driver_sys_path=list(reversed(folders_before_python())))
    ray.init(job_config=config, **_QUIET, **arguments)


@contextmanager
def own_ray(bundles: Sequence[Bundle]) -> Iterator[tuple[str, ...]]:
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
    with _private_folder() as folder, _closed_to_others():
        # Linux ends Ray's processes with the thread that started them: this thread lives as long as they do.
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="alray-own-ray")
        others = psutil.Process().children()
        starting = thread.submit(_start, max(cores, math.ceil(wanted)), folder / "r")
        with _watched():
            try:
                _wait_until_started(starting, others)
                warning = (
                    f"{len(bundles)} stages ask for {wanted:g} processors and this machine has {cores}: they share them"
                )
                yield (warning,) if wanted > cores else ()
            finally:
                has_started = starting.done()
                if has_started:
                    end_if_silent()
                if is_lost() or not has_started:  # or `shutdown` would wait for it
                    _end_leading_processes()
                    reaper.end_processes(str(folder))
                    _lost.append(folder)
                if has_started:
                    ray.shutdown()
                thread.shutdown(wait=has_started)


def _start(processors: int, folder: Path) -> None:
    """Start a Ray that keeps its files in a folder. Raises RunError if it does not start."""
    with _not_hung_up(), _given_up_in_time(), _named_if_it_fails():
        init_ray(address="local", num_cpus=processors, include_dashboard=False, _temp_dir=str(folder))


def _wait_until_started(starting: Future[None], others: Container[psutil.Process]) -> None:
    """Wait for `ray.init`.

    Ray's C++ code tries for a minute to connect to a Ray that is gone, and then ends this process with words of its
    own. No exception reaches it, so it stays behind in its thread.

    Args:
        others: the children that this process had before.

    Raises:
        RunError: if `ray.init` does, or if the Ray that it starts is gone meanwhile.
    """
    leading: dict[psutil.Process, str] = {}
    stopped = Counter[psutil.Process]()  # at how many looks, one after another
    try:
        while wait([starting], timeout=_LOOKING_S).not_done:
            for child in psutil.Process().children():
                with suppress(psutil.NoSuchProcess):
                    if child not in others and (name := child.name()) in _LEADING:
                        leading[child] = name
            for process, name in leading.items():
                status = _status_of(process)
                if status == psutil.STATUS_ZOMBIE:
                    raise RunError(f"Ray did not start on this machine: its {name} ended", hint=_how_to_start())
                stopped[process] = stopped[process] + 1 if status == psutil.STATUS_STOPPED else 0
                if stopped[process] * _LOOKING_S > _SILENT_S:
                    raise RunError(f"Ray did not start on this machine: its {name} was stopped", hint=_how_to_start())
    except KeyboardInterrupt:
        wait([starting])  # what has half started cannot be shut down
        raise
    starting.result()


def _how_to_start() -> str:
    limit = file_limit()
    if limit is not None:  # the system ends a program without a word that writes a larger file
        return f"{limit}, and Ray writes large ones: allow more, such as `ulimit -f unlimited`, or run with --inline"
    return "try again when the machine is less busy, look at it with `alray doctor`, or run with --inline"


def _status_of(process: psutil.Process) -> str:
    """A status of psutil; that of a zombie where the process is gone."""
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return psutil.STATUS_ZOMBIE


def _is_stopped() -> bool:
    """Whether somebody has stopped a leading process of the Ray that this process started (SIGSTOP)."""
    with suppress(psutil.NoSuchProcess):
        return any(
            _status_of(psutil.Process(process.pid)) == psutil.STATUS_STOPPED for _, process in _leading_processes()
        )
    return False


def was_lost() -> bool:
    """Whether this process has started a Ray that was lost before its end."""
    return bool(_lost)


def is_lost() -> bool:
    """Whether a leading process of the Ray that this process started has ended. False where it started none."""
    if _ended_process() is None:
        return False
    _seen.set()
    return True


def require_not_lost() -> None:
    """Raise StageError if `is_lost`.

    Without its GCS Ray starts, ends and places nothing, and after 60 seconds it ends every process that waits for it,
    this one too. Without its raylet, this machine is no node any more. So alray ends such a Ray as soon as it sees it.
    """
    if is_lost():
        raise StageError(f"a process of Ray on this machine ended: {_ended_process()}")


@contextmanager
def told_of_loss(lost: Callable[[StageError], None]) -> Iterator[None]:
    """Call `lost` in a separate thread if `is_lost` becomes true within the block.

    It is for work that waits in calls to Ray, as Ray Tune does: an exception never reaches it.
    """

    def look() -> bool:
        try:
            require_not_lost()
        except StageError as error:
            lost(error)
            return False
        return True

    with _looking(look):
        yield


@contextmanager
def _watched() -> Iterator[None]:
    """In the block, end this Ray if its GCS cannot be reached, and this process if a call to that Ray does not return.

    The GCS and the raylet are ended after `_SILENT_S` without a connection to the GCS, or in which one of them was
    stopped: the system still accepts connections to a stopped process. Who waits for Ray and looks at it then sees that
    it `is_lost`. If nobody has looked after `_UNSEEN_S`, a thread waits in Ray's C++ code. No exception reaches it, and
    after a minute it would end this process with Ray's message. So this process ends with one error before that.
    """
    looked_s, silent_s = time.monotonic(), 0.0
    _seen.clear()

    def look() -> bool:
        nonlocal looked_s, silent_s
        is_heard = _accepts_connections() and not _is_stopped()
        before_s, looked_s = looked_s, time.monotonic()
        silent_s = 0.0 if is_heard else silent_s + min(looked_s - before_s, _LONGEST_LOOK_S)
        if silent_s > _SILENT_S and _ended_process() is None:
            _end_leading_processes()
        if silent_s > _UNSEEN_S:
            _end_this_process()
        return not _seen.is_set()

    with _looking(look):
        yield


def _end_this_process() -> None:
    sys.stderr.write(
        "error: Ray on this machine cannot be reached, and a call to it does not return\n"
        "  = help: continue with `alray resume RUN` or `alray study --resume STUDY` if there is a checkpoint\n"
    )
    sys.stderr.flush()
    os._exit(1)


@contextmanager
def _looking(look: Callable[[], bool]) -> Iterator[None]:
    """Call `look` every second in a separate thread, until it returns False or the block has ended."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(_LOOKING_S) and look():
            pass

    looking = threading.Thread(target=repeat, name="alray-own-ray", daemon=True)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()


def end_if_silent() -> None:
    """End the leading processes of the Ray that this process started if one of them is stopped, or if its GCS does not
    answer: then it `is_lost`.

    A process that is stopped, or that no message reaches, has not ended. Calls that need the GCS would wait for a
    minute, and then raise an error or end this process; without an answer of the raylet, `shutdown` waits without end.
    """
    from ray.exceptions import RayError

    from alray.core.compat import ray_worker

    if not _leading_processes() or is_lost():
        return
    silent = _is_stopped()
    if not silent:
        # Where no connection is possible, the client would not keep to its time limit, and end this process.
        silent = not _accepts_connections()
    if not silent:
        try:
            ray_worker.global_worker.gcs_client.internal_kv_exists(b"alray", None, timeout=_ANSWERING_S)
        except RayError:
            silent = True
    if silent:
        _end_leading_processes()


def end_own_ray() -> bool:
    """End the leading processes of the Ray that this process started: then it `is_lost`. False if it started none."""
    if not _leading_processes():
        return False
    _end_leading_processes()
    return True


def _leading_processes() -> list[tuple[str, subprocess.Popen[bytes]]]:
    """The GCS and the raylet of the Ray that this process started, with their names; none before they have started."""
    from alray.core.compat import ray_worker

    node = ray_worker._global_node
    return [(name, info.process) for name in _LEADING for info in node.all_processes.get(name, ())] if node else []


def _gcs_address() -> tuple[str, int] | None:
    """Where the GCS of the Ray that this process started listens; None before it has started and after its end."""
    from alray.core.compat import ray_worker

    node = ray_worker._global_node
    if node is None or not node.all_processes.get("gcs_server"):
        return None
    host, _, port = node.gcs_address.rpartition(":")
    return host, int(port)


def _accepts_connections() -> bool:
    """Whether a connection to the GCS is possible. True before it has started."""
    address = _gcs_address()
    if address is None:
        return True
    try:
        socket.create_connection(address, timeout=_ANSWERING_S).close()
    except OSError:
        return False
    return True


def _end_leading_processes() -> None:
    address = _gcs_address()
    for _, process in _leading_processes():
        process.kill()
        process.wait()
    if address is not None:
        _hang_up(address[1])


def _hang_up(port: int) -> None:
    """Shut down the connections of this process to a port of a process that has ended.

    If the network is gone, this process does not learn of the end, and Ray's threads would wait for an answer for
    minutes. By then Ray's C++ code may have ended this process.
    """
    for connection in psutil.Process().net_connections("tcp"):
        if connection.raddr and connection.raddr.port == port:
            # One that has ended by itself cannot be shut down.
            with suppress(OSError), socket.socket(fileno=os.dup(connection.fd)) as own:
                own.shutdown(socket.SHUT_RDWR)


def _ended_process() -> str | None:
    """The leading process that has ended; None if there is none."""
    return next((name for name, process in _leading_processes() if process.poll() is not None), None)


def rays_folder() -> tuple[Path, Path]:
    """The folder for temporary files in which Ray keeps its files on this machine, and the nearest one above it that
    exists. Ray makes the folder where it is missing."""
    folder = Path(os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp").absolute()
    return folder, next(each for each in (folder, *folder.parents) if each.is_dir())


@contextmanager
def _private_folder() -> Iterator[Path]:
    """A new folder that only this user can enter. Ray lets everybody write to its folder, which lies in this one.

    The folder is deleted when the block ends or this process is gone, and what still runs of that Ray is ended.
    """
    parent, _ = rays_folder()
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
    process, before = reaper.begin(folder), os.environ.get(OWNER)
    os.environ[OWNER] = str(folder)
    try:
        yield folder
    finally:
        os.environ.pop(OWNER)
        if before is not None:
            os.environ[OWNER] = before
        reaper.finish(process, folder)


@contextmanager
def rays_environment() -> Iterator[None]:
    """Set what every Ray of alray reads from the environment, and put the variables of Ray back after the block."""
    before = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        with children_import_safely():
            yield
    finally:
        for name in [name for name in os.environ if name.startswith("RAY_") and name not in before]:
            del os.environ[name]
        os.environ |= before


@contextmanager
def _closed_to_others() -> Iterator[None]:
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


def read_authentication_again() -> None:
    """Make Ray forget what it has read of mode and token from the environment.

    The mode comes first: where a thread of an earlier Ray still ends, it must not look for a token that is gone.
    """
    from alray.core.compat import AuthenticationTokenLoader, RayConfig

    RayConfig.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def _not_hung_up() -> Iterator[None]:
    """Block SIGHUP for the processes that are started in the block.

    When a terminal is closed, its shell sends SIGHUP to them too. Ray must continue until the run has its checkpoint.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _given_up_in_time() -> Iterator[None]:
    """Let Ray give up in the block after a minute and a half where its GCS has started and does not answer.

    By default it would take fifteen minutes.
    """
    from alray.core.compat import ray_constants

    before = ray_constants.NUM_REDIS_GET_RETRIES
    ray_constants.NUM_REDIS_GET_RETRIES = _TRIES
    try:
        yield
    finally:
        ray_constants.NUM_REDIS_GET_RETRIES = before


@contextmanager
def _named_if_it_fails() -> Iterator[None]:
    """Raise RunError where Ray does not start in the block."""
    try:
        yield
    except Exception as error:  # Ray raises plain Exceptions, such as for a node that takes too long
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RunError(f"Ray did not start on this machine: {lines[0]}", hint=_how_to_start()) from error
