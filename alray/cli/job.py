"""What `alray submit` runs on the cluster: `python -m alray.cli.job FOLDER run|study SPEC [key=value ...]`.

The current folder is Ray's copy of the package. Ray deletes it when nothing of the job uses the cluster any more, so
the package is copied into the job's own folder first: a run can be resumed from there.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

from alray import __version__
from alray.cli.main import execute
from alray.cli.terminal import Terminal
from alray.errors import Problem, RequestError
from alray.submit.places import PACKAGE, RESULT


def main(arguments: list[str]) -> int:
    """Run one command in the folder of the job, and return its exit code."""
    streams = Terminal(as_json=False, as_events=True)
    packages = {"alray": __version__, "ray": version("ray"), "torch": version("torch")}
    streams.event("versions", packages=packages, python=platform.python_version(), host=platform.node())
    folder, command, spec, *rest = arguments
    job = Path(folder).expanduser()
    try:
        shutil.copytree(".", job / PACKAGE)
    except OSError as error:
        mend = "give another --folder, one that can be written there"
        streams.refuse([Problem(f"the job's folder cannot be made: {error.strerror}", mend, str(job), key="--folder")])
        return RequestError.exit_code
    os.chdir(job / PACKAGE)
    where = {"run": "--run-dir", "study": "--study-dir"}[command]
    return execute([command, spec, *rest, where, str(job / RESULT), "--events"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
