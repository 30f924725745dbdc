"""What a spec names outside itself: files, folders and classes of the user. They are looked for, not opened or run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from alray.spec.find_class import ClassFinder
from alray.spec.finding import Check, Finding
from alray.spec.grammar import marked
from alray.spec.models import Spec, Torchvision
from alray.spec.own_code import OwnClass
from alray.spec.section import Input


def input_checks(root: Path, *, allow_elsewhere: bool) -> tuple[Check, ...]:
    """Return the checks that everything a spec names is there.

    root: the folder of the spec, where the user's classes are. allow_elsewhere: whether they may be in other places.
    """

    def classes_exist(spec: Spec) -> Iterator[Finding]:
        """The classes of the user are defined in their modules."""
        find = ClassFinder(root, allow_elsewhere=allow_elsewhere)
        for path, reference, _ in marked(spec, OwnClass):
            fault = find(reference)
            if fault is not None:
                yield path, *fault

    return inputs_exist, data_set_exists, classes_exist


def inputs_exist(spec: Spec) -> Iterator[Finding]:
    """The files and folders that are read are there."""
    for key, value, wanted in marked(spec, Input):
        path = Path(value)
        if not str(value).endswith(wanted.ending):
            continue
        if not (path.is_dir() if wanted.kind == "folder" else path.is_file()):
            is_other = path.exists()
            yield (
                key,
                f"`{path}` is not a {wanted.kind}" if is_other else f"there is no {wanted.kind} `{path}`",
                f"give a {wanted.kind}; a relative path is taken from the folder of the spec",
            )


def data_set_exists(spec: Spec) -> Iterator[Finding]:
    """A data set of torchvision is there, or may be downloaded."""
    data = spec.data
    if isinstance(data, Torchvision) and not data.download and not data.root.is_dir():
        yield (
            ("data", "root"),
            f"there is no folder `{data.root}`",
            f"give the folder with the files of {data.dataset}, or set data.download to true",
        )
