"""What `alray submit` runs on the cluster, as `python -m alray.cli.job` and one of

    run|study FOLDER RESULT SPEC [key=value ...]
    resume RESULT [key=value ...]

FOLDER is that of the job, RESULT its run folder or study folder. The current folder is Ray's copy of the package. Ray
deletes it when nothing of the job uses the cluster any more, so the package is copied into the job's own folder first.
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
from alray.study.folder import STUDY
from alray.submit.places import PACKAGE, on_this_node


def main(arguments: list[str]) -> int:
    """Run one command, and return its exit code."""
    streams = Terminal(as_json=False, as_events=True)
    packages = {"alray": __version__, "ray": version("ray"), "torch": version("torch")}
    streams.event("versions", packages=packages, python=platform.python_version(), host=platform.node())
    command, *rest = arguments
    if command == "resume":
        result, *given = rest
        result = on_this_node(result)
        words = ["study", "--resume"] if (Path(result) / STUDY).is_file() else ["resume"]
        return execute([*words, result, *given, "--events"])
    folder, result, spec, *given = rest
    job = Path(on_this_node(folder))
    try:
        shutil.copytree(".", job / PACKAGE)
    except OSError as error:
        mend = "give another --folder, one that can be written there"
        streams.refuse([Problem(f"the job's folder cannot be made: {error.strerror}", mend, str(job), key="--folder")])
        return RequestError.exit_code
    os.chdir(job / PACKAGE)
    where = {"run": "--run-dir", "study": "--study-dir"}[command]
    return execute([command, spec, *given, where, on_this_node(result), "--events"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
