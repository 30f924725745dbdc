"""The package of a job: the spec, the `python:` modules next to it, and the files that it names by relative paths.

An absolute path, and one that begins with `~`, is a path of the cluster: nothing is packed for it.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alray.config.loading.inputs import inputs_exist, model_exists
from alray.config.loading.load import LoadedSpec, load_spec
from alray.config.loading.messages import problem
from alray.config.loading.own_files import module_fault, own_files
from alray.config.sections.grammar import marked
from alray.config.sections.model import TRANSFORMERS
from alray.config.sections.own_code import OwnClass
from alray.config.sections.section import Input
from alray.config.sections.spec import Spec
from alray.config.study.load import is_study, load_study
from alray.core.errors import RequestError, SpecError
from alray.planning.schedules.listed import is_listed
from alray.report.text import size

LARGEST_PACKAGE_BYTES = 100 * 1024**2
"""Ray's dashboard refuses a larger upload."""
_ENTRY_BYTES = 300
"""At most so much is written into the archive for a file besides its content and its name, twice."""
_SHOWN = 5
_LEFT_OUT = ("__pycache__", ".git")
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Package:
    """Files to take along.

    Attributes:
        root: a folder around all of them, with which relative paths stay what they are.
    """

    command: str  # run or study
    name: str  # of the run or study
    root: Path
    spec: Path
    files: tuple[Path, ...]
    specs: tuple[Spec, ...]  # of the run, or of each trial

    def inside(self, file: Path) -> str:
        """Where a file lies in the package."""
        return file.relative_to(self.root).as_posix()

    def write(self, archive: Path) -> None:
        """Write the package as a zip file. Equal files give equal bytes, and then Ray uploads them once."""
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for file in self.files:
                entry = zipfile.ZipInfo(self.inside(file), _EPOCH)
                entry.external_attr = 0o644 << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                packed.writestr(entry, _content(file))


def package(spec_file: Path, overrides: Sequence[str], include: Sequence[Path], *, allow_code: bool) -> Package:
    """Find everything that a spec or a study needs from here. Nothing is opened or run.

    Raises SpecError if the spec is wrong or something it names is missing, and RequestError if the whole is too large.

    Args:
        include: more files and folders.
        allow_code: classes that are not next to the spec are on the cluster.
    """
    file = spec_file.resolve()
    if is_study(spec_file):
        study = load_study(spec_file, overrides)
        base = study.study.base.resolve()
        specs = [load_spec(base, trial.overrides) for trial in study.trials]
        ends = [load_spec(base, overrides) for overrides in study.ends]
        command = "study"
        name = study.study.study
        files = {file, base}
    else:
        specs = [load_spec(spec_file, overrides)]
        ends = []
        command = "run"
        name = specs[0].spec.name
        files = {file}
        base = file
    for loaded in (*specs, *ends):
        files |= set(_named(loaded, base.parent, allow_code=allow_code))
    for path in include:
        if not path.exists():
            raise RequestError("there is no such file or folder", file=str(path), key="--include", hint="correct it")
        files |= set(_all_files(path.parent.resolve() / path.name))
    _require_small(files)
    root = Path(os.path.commonpath([each.parent for each in files]))
    return Package(command, name, root, file, tuple(sorted(files)), tuple(loaded.spec for loaded in specs))


def _named(loaded: LoadedSpec, folder: Path, *, allow_code: bool) -> Iterator[Path]:
    """The files that a spec names. Raises SpecError if one is missing."""
    spec = loaded.spec
    if loaded.base is not None:
        yield loaded.base
    # A value without the ending of a file is a name, and need not be given.
    inputs = [(path, value) for path, value, _ in marked(spec, Input)]
    here = {path: value for path, value in inputs if _is_relative(loaded.given, path)}
    faults = [finding for finding in inputs_exist(spec) if finding[0] in here]
    own_model = str(loaded.given.get("model", {}).get("from", "")).startswith(f"{TRANSFORMERS}.")
    faults += model_exists(spec) if own_model else ()
    references = {path: reference for path, reference, _ in marked(spec, OwnClass)}
    for path, reference in references.items():
        if fault := module_fault(reference, folder, allow_elsewhere=allow_code):
            faults.append((path, *fault))
    if faults:
        raise SpecError.of(tuple(problem(loaded.locations, *fault) for fault in faults))
    yield from own_files(references.values(), folder)
    schedule = loaded.given.get("pipeline", {}).get("schedule")  # the spec holds what this file says
    if is_listed(schedule) and "\n" not in schedule and _is_relative(loaded.given, ("pipeline", "schedule")):
        yield folder / schedule
    for value in here.values():
        yield from _all_files(Path(os.path.normpath(value)))
    if own_model and spec.model.source is not None:
        yield from _all_files(Path(os.path.normpath(spec.model.source.removeprefix(TRANSFORMERS))))
    data = spec.data
    if ("data", "train") in here:
        yield from (each for each in data.read_beside if each.is_file())
    downloads = data.downloads_to is not None and data.from_files != data
    if data.downloads_to is not None and not downloads and _is_relative(loaded.given, ("data", "root")):
        yield from _all_files(Path(os.path.normpath(data.downloads_to)))


def _is_relative(given: Any, path: Iterable[str | int]) -> bool:
    """Whether the path that a spec gives under a key is relative."""
    for part in path:
        given = given[part]
    return not str(given).startswith(("/", "~"))


def _all_files(path: Path) -> Iterator[Path]:
    """The file itself, or all files of a folder."""
    if path.is_file():
        yield path
    for folder, folders, names in os.walk(path, followlinks=True):
        here = Path(folder)
        on_the_way = [each.resolve() for each in (here, *here.parents)]
        # A link to one of these, or to a folder around one, would be followed for ever.
        folders[:] = [
            name
            for name in folders
            if name not in _LEFT_OUT and not any(each.is_relative_to((here / name).resolve()) for each in on_the_way)
        ]
        yield from (Path(folder, name) for name in names if Path(folder, name).is_file())


def _content(file: Path) -> bytes:
    """Raises RequestError for a file that cannot be read, or whose name a zip file cannot hold."""
    try:
        str(file).encode()
        return file.read_bytes()
    except UnicodeEncodeError as error:
        raise RequestError("the name of this file is not UTF-8", file=str(file), hint="give it another name") from error
    except OSError as error:
        raise RequestError(
            f"a file to be sent cannot be read: {error.strerror}",
            file=str(file),
            hint="allow it to be read, or leave it out",
        ) from error


def _require_small(files: Iterable[Path]) -> None:
    """Raise RequestError that names the largest files if Ray would refuse the upload."""
    sizes = {file: file.stat().st_size for file in files}
    total = sum(sizes.values()) + sum(_ENTRY_BYTES + 2 * len(str(file)) for file in sizes)
    if total <= LARGEST_PACKAGE_BYTES:
        return
    largest = sorted(sizes, key=lambda file: sizes[file], reverse=True)[:_SHOWN]
    named = ", ".join(f"{file} ({size(sizes[file])})" for file in largest)
    raise RequestError(
        f"{len(sizes)} files of {size(total)} would be sent, and Ray takes at most "
        f"{size(LARGEST_PACKAGE_BYTES)}: {named}",
        hint="put large data where all nodes of the cluster can read it, and give its absolute path there",
    )
