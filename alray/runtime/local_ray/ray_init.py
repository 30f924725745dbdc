"""Ray in this process: how it is imported, what it reads from the environment, and `ray.init`, for a Ray that alray
starts and for one that it attaches to."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from alray.core.environment import environment
from alray.core.import_path import children_import_safely, folders_before_python

_QUIET: Mapping[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "alray"}


def import_ray() -> None:
    """Import Ray. Call this before anything of Ray is imported in the process of a command.

    Ray's C++ code reads the process number of its raylet once, from the environment. Without one, it takes the parent
    of this process for its raylet. If the parent is process 1, as in a container or after `nohup`, Ray concludes that
    the raylet is dead, and ends this process without a word at the first call that fails. Here it reads the number of
    this process instead.
    """
    with environment(RAY_RAYLET_PID=os.environ.get("RAY_RAYLET_PID") or str(os.getpid())):
        from alray.core.compat import RayConfig

        RayConfig.ray_cookie()  # the first question makes Ray read its environment


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


def read_authentication_again() -> None:
    """Make Ray forget what it has read of mode and token from the environment.

    The mode comes first: where a thread of an earlier Ray still ends, it must not look for a token that is gone.
    """
    from alray.core.compat import AuthenticationTokenLoader, RayConfig

    RayConfig.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
