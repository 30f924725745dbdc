"""Where processes that alray starts look for modules: where this one does, and not by themselves in the current folder.

The current folder may be a stranger's, as after `cd DOWNLOADED; alray resume .`. Python puts it in front of everything
for `-m` and `-c`, with which also multiprocessing starts its processes.
"""

from __future__ import annotations

import sys
import sysconfig
from contextlib import AbstractContextManager
from itertools import takewhile
from pathlib import Path

from alray.core.environment import environment


def children_import_safely() -> AbstractContextManager[None]:
    """Python does not put the current folder in front for processes that are started in the block."""
    return environment(PYTHONSAFEPATH="1")


def folders_before_python() -> list[str]:
    """The absolute folders of `sys.path` that come before those of Python: of the script that runs, of PYTHONPATH, and
    of a user's code. A process that a library starts lacks some of them."""
    own = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    before = takewhile(lambda folder: folder not in own, (Path(entry).absolute() for entry in sys.path))
    return list(dict.fromkeys(str(folder) for folder in before if folder.is_dir()))


def leave_current_folder() -> None:
    """Look no further for modules in the current folder, which `python -m` has put in front.

    It stays if alray itself lies there, as in a checkout: then it is no stranger's.
    """
    here = Path.cwd()
    if not sys.flags.safe_path and sys.path[:1] == [str(here)] and Path(__file__).parents[2] != here:
        del sys.path[0]
