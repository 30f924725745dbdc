"""Folders that hold one subfolder per class."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from alray.errors import DataError


def class_folders(folder: Path, key: str, *, holding: str, passed_over: Collection[str] = ()) -> list[Path]:
    """The subfolders, sorted by name, without hidden ones and those `passed_over`.

    key: of the spec, and holding: what lies in them ("pictures"), for messages. Raises DataError where there is none.
    """
    if not folder.is_dir():
        raise DataError(
            "folder not found",
            file=str(folder),
            key=key,
            mend="give a folder that has one subfolder per class",
        )
    found = sorted(
        entry
        for entry in folder.iterdir()
        if entry.is_dir() and not entry.name.startswith(".") and entry.name not in passed_over
    )
    if not found:
        raise DataError(
            "the folder has no subfolders",
            file=str(folder),
            key=key,
            mend=f"put the {holding} of each class in a subfolder named after it",
        )
    return found


def require_known(subfolder: Path, classes: tuple[str, ...], key: str) -> int:
    """The number of the class a subfolder is named after. Raises DataError where there is no such class."""
    if subfolder.name not in classes:
        raise DataError(
            f"class `{subfolder.name}` is not a training class ({', '.join(classes)})",
            file=str(subfolder),
            key=key,
            mend="name the subfolders alike in both folders",
        )
    return classes.index(subfolder.name)


def require_files(found: list[Path], subfolder: Path, key: str, *, holding: str) -> list[Path]:
    """What was found, sorted. Raises DataError where that is nothing."""
    if not found:
        raise DataError(
            f"the class has no {holding}",
            file=str(subfolder),
            key=key,
            mend=f"put {holding} in the folder or remove it",
        )
    return sorted(found)
