"""What closes a Ray to other users of this machine: a private folder, a random token, and 127.0.0.1 alone."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alray.core.environment import environment
from alray.core.errors import RequestError
from alray.data.worker_names import OWNER
from alray.runtime.local_ray import reaper
from alray.runtime.local_ray.ray_init import rays_environment, read_authentication_again

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
