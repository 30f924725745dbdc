"""Checks of `alray doctor`: what a machine needs to be a node of a Ray cluster."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
from pathlib import Path

import psutil

from alray.cli.check_result import CheckResult
from alray.report.text import share, size
from alray.runtime.local_ray.private import rays_folder
from alray.submit.dashboard import token_location

_RAYS_PORTS = {6379: "head", 8265: "dashboard"}
_RAYS_HEAD = "gcs_server"
_RAYS_FULLEST = 0.95
"""Ray writes nothing more to a disk that is fuller."""
_TIME_ERROR = 5
_TIMEX_BYTES = 512  # more than `struct timex` has; zeros mean to read and change nothing


def ports() -> CheckResult:
    """Whether the ports of a Ray head are free. Nothing is opened to find out."""
    if any(process.info["name"] == _RAYS_HEAD for process in psutil.process_iter(["name"])):
        return CheckResult("ports", "ok", "a Ray runs here")
    listening = {
        each.laddr.port for each in psutil.net_connections("tcp") if each.laddr and each.status == psutil.CONN_LISTEN
    }
    taken = [f"{port} ({use})" for port, use in _RAYS_PORTS.items() if port in listening]
    if taken:
        return CheckResult(
            "ports",
            "warning",
            f"other programs use ports of a Ray head: {', '.join(taken)}",
            "to start a head here: ray start --head --port=N --dashboard-port=N",
        )
    return CheckResult("ports", "ok", "those of a Ray head are free")


def clock() -> CheckResult:
    """Whether the system keeps the clock right. Ray's logs and the times of different nodes are compared by it."""
    if _adjtimex() == _TIME_ERROR:
        return CheckResult(
            "clock",
            "warning",
            "nothing keeps it right, so the times of several nodes may not agree",
            "run chrony or systemd-timesyncd on every node; a virtual machine may have the clock of its host",
        )
    return CheckResult("clock", "ok", "kept right by the system")


def _adjtimex() -> int:
    """The state of the system's clock (Linux, adjtimex(2))."""
    return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)))


def rays_disk() -> CheckResult:
    """The disk that Ray keeps its session on, and spills to."""
    folder, holder = rays_folder()
    if not os.access(holder, os.W_OK | os.X_OK):
        return CheckResult(
            "disk of Ray",
            "fault",
            f"{holder} cannot be written, and Ray would keep its session in {folder}",
            "set RAY_TMPDIR to a folder that can be written, with a short name",
        )
    disk = shutil.disk_usage(holder)
    full = disk.used / disk.total
    if full > _RAYS_FULLEST:
        return CheckResult(
            "disk of Ray",
            "warning",
            f"the disk of {folder} is {share(full)} full: Ray writes nothing above {share(_RAYS_FULLEST)}",
            "free some space, or set RAY_TMPDIR to a folder on another disk, with a short name",
        )
    return CheckResult("disk of Ray", "ok", f"{folder} has {size(disk.free)} left")


def authentication() -> CheckResult:
    """Whether the token of a cluster is where Ray and `alray submit` look for it, and hidden from other users."""
    location = token_location()
    if location is None:
        return CheckResult(
            "authentication",
            "ok",
            "no token is sent; a cluster that others reach needs one: "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH, on every node",
        )
    if isinstance(location, Path) and (problem := _problem_of_token(location)) is not None:
        return problem
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        return CheckResult(
            "authentication",
            "warning",
            f"`alray submit` sends the token in {location}, and Ray itself sends none to a cluster",
            "set RAY_AUTH_MODE=token for `alray run --address` and `ray start --address`",
        )
    return CheckResult("authentication", "ok", f"the token is in {location}")


def _problem_of_token(file: Path) -> CheckResult | None:
    try:
        mode_bits, token = file.stat().st_mode, file.read_text().strip()
    except OSError as error:
        return CheckResult(
            "authentication",
            "fault",
            f"the token should be in {file}, which cannot be read: {error.strerror}",
            "write the token of the cluster there (on its head: `ray get-auth-token`), or set RAY_AUTH_TOKEN_PATH",
        )
    if not token:
        return CheckResult("authentication", "fault", f"{file} is empty", "ray get-auth-token --generate makes a token")
    if mode_bits & (stat.S_IRGRP | stat.S_IROTH):
        return CheckResult(
            "authentication", "warning", f"other users of this machine can read {file}", f"chmod 600 {file}"
        )
    return None
