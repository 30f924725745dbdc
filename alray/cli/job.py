"""The program that `alray submit` runs on the cluster, as `python -m alray.cli.job` and one of

    run|study PACKAGE RESULT SPEC [key=value ...]
    resume RESULT [key=value ...]

RESULT is the run folder or study folder. The current folder is Ray's copy of the package. Ray deletes it when nothing
of the job uses the cluster any more, so it is first copied to PACKAGE.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import sys
from importlib.metadata import version
from pathlib import Path

from alray import __version__
from alray.api.console.closed_output import lasting, take_closed_descriptors
from alray.cli.main import execute
from alray.cli.terminal import Terminal
from alray.core.errors import Problem, RequestError
from alray.studies.folder import STUDY
from alray.submit.locations import on_this_node


def main(arguments: list[str]) -> int:
    """Run one command, and return its exit code."""
    # Where Ray was started in the background of a script, its jobs ignore SIGINT, by which they are stopped.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    take_closed_descriptors()
    sys.stdout = lasting(sys.stdout)
    sys.stderr = lasting(sys.stderr)
    streams = Terminal(as_json=False)
    streams.tell(f"alray {__version__} with Ray {version('ray')} on {platform.node()}")
    command, *rest = arguments
    if command == "resume":
        result, *given = rest
        result = on_this_node(result)
        words = ["study", "--resume"] if (Path(result) / STUDY).is_file() else ["resume"]
        return _execute([*words, result, *given])
    package_dir, result, spec, *given = rest
    package = on_this_node(package_dir)
    try:
        shutil.copytree(".", package)
    except OSError as error:
        # Of several files that could not be copied, shutil tells from where, to where and why.
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
        hint = "give another folder by --output: one on a disk that has room, where the job may write"
        streams.refuse([Problem(f"the package cannot be copied here: {reason}", hint, package, key="--output")])
        return RequestError.exit_code
    os.chdir(package)
    return _execute([command, spec, *given, "--output", on_this_node(result)])


def _execute(words: list[str]) -> int:
    """Run a command of alray. A run keeps `sys.argv` as the command that made it."""
    sys.argv = ["alray", *words]
    return execute(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
