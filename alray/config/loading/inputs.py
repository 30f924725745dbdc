"""Checks that the user's files, folders, modules and packages that a spec names exist. Nothing is opened or run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from alray.config.loading.load import LoadedSpec, SpecSource, directory_of, file_of, load_spec
from alray.config.loading.own_files import module_fault
from alray.config.objects import NO_OBJECTS, Objects, missing_objects
from alray.config.sections.checks import Check, Finding
from alray.config.sections.grammar import marked
from alray.config.sections.model import TRANSFORMERS
from alray.config.sections.own_code import OfPackage, OwnClass, reference_to
from alray.config.sections.section import Input
from alray.config.sections.spec import Spec
from alray.core.packages import require
from alray.core.run_folder.records import read_environment
from alray.core.storage.location import Location


def input_checks(root: Path, *, allow_elsewhere: bool) -> tuple[Check, ...]:
    """Return the checks that everything a spec names is there.

    Args:
        root: the folder of the spec, where the user's classes are.
        allow_elsewhere: whether they may be in other folders.
    """

    def modules_exist(spec: Spec) -> Iterator[Finding]:
        """The modules of the user's classes are there."""
        for path, reference, _ in marked(spec, OwnClass):
            fault = module_fault(reference, root, allow_elsewhere=allow_elsewhere)
            if fault is not None:
                yield path, *fault

    return inputs_exist, model_exists, data_set_exists, modules_exist


def load_with_inputs(
    source: SpecSource,
    overrides: Sequence[str],
    *,
    code: Location | None = None,
    allow_elsewhere: bool,
    without_data: bool = False,
    objects: Objects = NO_OBJECTS,
) -> LoadedSpec:
    """A spec, as from `load_spec`, with all that it names.

    Args:
        code: where the user's classes are; None: in the folder of the spec. If they are on object storage, those that
            are missing are reported when they are loaded.
        allow_elsewhere: as for `input_checks`.
        without_data: missing data are reported when the data are opened.
        objects: that a Python program gave.
    """
    folder = code or objects.root or directory_of(file_of(source))
    checks = input_checks(folder, allow_elsewhere=allow_elsewhere) if isinstance(folder, Path) else ()
    checks = (*checks, partial(missing_objects, objects))
    if without_data:
        checks = tuple(partial(_besides_data, check) for check in checks)
    return load_spec(source, overrides, also=checks)


def _besides_data(check: Check, spec: Spec) -> Iterator[Finding]:
    return (finding for finding in check(spec) if finding[0][0] != "data")


def names_code(spec: Spec) -> bool:
    """Whether a spec names a class of the user."""
    return any(True for _ in marked(spec, OwnClass))


def packages_of(spec: Spec) -> dict[str, str]:
    """The names in a spec that installed packages provide, `group:name`, each with the package and its version."""
    names = (require(reference_to(name, mark.group)) for _, name, mark in marked(spec, OfPackage))
    return {one.reference: one.origin for one in names}


def load_own_spec(run_dir: Location) -> LoadedSpec:
    """The spec of a run folder. Raises SpecError if a package is missing that provided a name of the run."""
    for reference, origin in ((read_environment(run_dir) or {}).get("brought_by") or {}).items():
        require(reference, origin)
    return load_spec(run_dir / "spec.yaml")


def inputs_exist(spec: Spec) -> Iterator[Finding]:
    """The files and folders that are read are there."""
    for key, value, wanted in marked(spec, Input):
        path = Path(value)
        if not (path.is_dir() if wanted.kind == "folder" else path.is_file()):
            is_other = path.exists()
            yield (
                key,
                f"`{path}` is not a {wanted.kind}" if is_other else f"there is no {wanted.kind} `{path}`",
                f"give a {wanted.kind}; a relative path is taken from the folder of the spec",
            )


def model_exists(spec: Spec) -> Iterator[Finding]:
    """The folder of a model of transformers is there."""
    source = spec.model.source or ""
    folder = source.removeprefix(TRANSFORMERS)
    if source.startswith(f"{TRANSFORMERS}/") and not Path(folder).is_dir():
        yield ("model", "from"), f"there is no folder `{folder}`", "give a folder with the config of a model"


def data_set_exists(spec: Spec) -> Iterator[Finding]:
    """A data set of torchvision is there, or may be downloaded."""
    data = spec.data
    if data.downloads_to is not None and not data.downloads_to.is_dir() and data.from_files == data:
        yield (
            ("data", "root"),
            f"there is no folder `{data.downloads_to}`",
            "give the folder with the files of the data set, or set data.download to true",
        )
