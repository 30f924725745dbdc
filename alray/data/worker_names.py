"""Names for what loader workers share with the process that they read for, so that it can be removed by others."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

OWNER = "ALRAY_OWN_RAY"
"""The environment variable in which the processes of a Ray that alray started find the folder of that Ray."""


def use_names_of_owner() -> None:
    """Name the semaphores that this process makes after the folder of its Ray, and put temporary files into it.

    Nothing is done where no such Ray runs this process. multiprocessing has a separate process that would remove both;
    but Ray kills a worker together with its children. `alray.runtime.local_ray.reaper` removes what has these names.
    """
    folder = os.environ.get(OWNER)
    if folder is not None:
        settings = multiprocessing.current_process()._config  # type: ignore[attr-defined] # no public way to set them
        settings |= {"semprefix": f"/{Path(folder).name}", "tempdir": folder}
