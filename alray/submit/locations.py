"""The locations of a job's files on the cluster."""

from __future__ import annotations

from pathlib import Path

FOLDER = "~/alray-jobs"
"""Where the run folders and study folders of jobs are made if nothing else is asked for. Each has the ID of its job."""

PACKAGES = "packages"
"""The folder next to them with what was sent along, in a folder for each job."""


def is_location(text: str) -> bool:
    """Whether this names a folder that is the same from everywhere on a node: an absolute path or a URL."""
    return text.startswith(("/", "~")) or is_url(text)


def is_url(text: str) -> bool:
    return "://" in text


def on_this_node(location: str) -> str:
    """The location, with this node's home folder for `~`."""
    return str(Path(location).expanduser()) if location.startswith("~") else location
