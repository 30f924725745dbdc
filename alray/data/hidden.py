"""Which files of a folder are hidden, so that no source takes them for samples."""

from __future__ import annotations

from pathlib import Path


def is_hidden(path: Path, folder: Path) -> bool:
    """Whether a file in `folder` is hidden, or is in a hidden folder below: copies that Jupyter makes, what macOS adds
    (`._a.txt`), or `.git`."""
    return any(part.startswith(".") for part in path.relative_to(folder).parts)
