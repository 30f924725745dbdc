"""Run folders: making one, and the manifests of its checkpoints. A run folder is on a disk or on object storage."""

from __future__ import annotations

import errno
import itertools
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from alray.core.errors import CheckpointError, DiskFault, RequestError, RunError
from alray.core.run_folder.data_identity import DataIdentity
from alray.core.run_folder.records import Standing, replace_file, require_fitting, write_json
from alray.core.storage import disk
from alray.core.storage.appended import was_appended
from alray.core.storage.json_file import read_json
from alray.core.storage.location import Location, remove_file, remove_folder, sync_folder
from alray.core.storage.lock import LOCK, is_held
from alray.core.storage.objects import ObjectPath

MANIFEST = "manifest.json"
FORM = "sample.json"
"""How a file or a text becomes a sample, without the data."""
_MARK = ".run"
_BEFORE_RECORDS = (
    *(_MARK, LOCK, "spec.yaml", "environment.json", FORM, "plan.json", "records.jsonl"),
    *("code", "code.json", "logs", "tensorboard"),
)
"""The files that a run writes before its first record."""


@dataclass(frozen=True)
class ComponentFile:
    """One file of a checkpoint. `file` is its name in the checkpoint's folder."""

    file: Annotated[str, Field(pattern=r"^[^/\\\x00]+$")]
    sha256: str
    bytes: int


class _Manifest(BaseModel):
    """`manifest.json`, as `write_manifest` writes it."""

    model_config = ConfigDict(extra="allow")

    step: int = Field(ge=0)
    epoch: float = Field(ge=0, allow_inf_nan=False)
    samples: int = Field(ge=0)
    partition: list[PositiveInt] = Field(min_length=1)
    environment: dict[str, Any]
    shares: list[PositiveInt] | None = None
    data: DataIdentity
    evaluations: Standing
    files: list[ComponentFile]

    @model_validator(mode="after")
    def _require_epoch(self) -> Self:
        require_fitting(self.step, self.epoch)
        return self


def step_folder(step: int) -> str:
    """Name of the folder that holds the checkpoint after `step` mini-batches."""
    return f"step-{step:08d}"


def checkpoint_folder(run_dir: Location, step: int) -> Location:
    """The folder that holds the checkpoint after `step` mini-batches."""
    return run_dir / "checkpoints" / step_folder(step)


def require_new(run_dir: Location | None) -> None:
    """Raise RequestError if no run can begin in this folder. None stands for one in `runs`.

    This is asked before anything slow. `make_run_dir` asks again, for another run may have started there meanwhile.
    """
    if isinstance(run_dir, ObjectPath):
        run_dir.require_folder()
        if run_dir.is_dir():
            raise _not_empty(run_dir)
        return
    folder = run_dir or Path("runs")
    with _making(folder):
        if run_dir is not None and _taken(run_dir):
            raise _not_empty(run_dir)
        there = next(each for each in (folder, *folder.parents) if each.exists())
        with TemporaryDirectory(dir=there):  # only trying tells: root may write anywhere but in some file systems
            pass


def make_run_dir(name: str, run_dir: Location | None) -> Location:
    """Make the folder `run_dir`, or `runs/<name>-<time>` for None; return its absolute path.

    What a run left there that ended before its first record is deleted, also where it was killed. On object storage the
    folder stays taken: two runs that begin at once could not agree whose it is. Raises RequestError if anything else is
    in `run_dir`, or if the folder cannot be made.
    """
    if isinstance(run_dir, ObjectPath):
        run_dir.require_folder()
        # Of several runs that begin there at once, the one that writes the mark has the folder.
        ours = new_token().encode()  # by which it is known where the answer to the request was lost
        file = run_dir / _MARK
        if run_dir.is_dir() or not (file.create(ours) or file.read_bytes() == ours):
            raise _not_empty(run_dir)
        return run_dir
    if run_dir is None:
        with _making(Path("runs") / name):
            run_dir = new_folder(Path("runs") / name)
    elif _taken(run_dir):
        raise _not_empty(run_dir)
    with _making(run_dir):
        disk.make_folders(run_dir)
        for left in run_dir.iterdir():
            if left.name in (LOCK, _MARK):  # another run may have the lock; the mark tells whose all the others are
                continue
            if left.is_dir() and not left.is_symlink():
                remove_folder(left)
            else:
                disk.remove_file(left)
        mark(run_dir, "")  # before anything else: see `never_began`
    return run_dir.resolve()


def new_folder(path: Path) -> Path:
    """Make `<path>-<time>`, or the first of `<path>-<time>_2` and so on that is not there. Raises OSError if it cannot
    be made."""
    first = path.with_name(f"{path.name}-{time.strftime('%Y%m%d-%H%M%S')}")
    for number in itertools.count(1):
        folder = first if number == 1 else first.with_name(f"{first.name}_{number}")
        if disk.make_folders(folder):
            break
    return folder


def _taken(run_dir: Path) -> bool:
    if not run_dir.is_dir():
        return run_dir.exists()
    names = _names(run_dir)
    if names <= {LOCK}:  # whoever holds it keeps others out
        return False
    return not (names <= set(_BEFORE_RECORDS) and never_began(run_dir))


def _names(run_dir: Path) -> set[str]:
    """The names in a folder, without what a killed process had half written."""
    return {path.name for path in run_dir.iterdir() if path.suffix != disk.PARTIAL}


def never_began(run_dir: Path) -> bool:
    """Whether the last run in this folder ended before its first record, so that there is nothing to continue."""
    return (run_dir / _MARK).is_file() and not _has_records(run_dir) and not is_held(run_dir)


def _has_records(run_dir: Path) -> bool:
    file = run_dir / "records.jsonl"
    return was_appended(file) and not (file.is_file() and file.stat().st_size == 0)


@contextmanager
def _making(run_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RequestError(
            f"the run folder cannot be made: {error.strerror}",
            file=str(run_dir),
            hint="choose another folder, by --output",
        ) from error


def run_name(run_dir: Location, study: Path | None = None) -> str:
    """The name of a run wherever it is shown next to others: that of its folder.

    Args:
        study: the folder of the study, if the run is a trial of one.
    """
    return run_dir.name if study is None else f"{study.name}-{run_dir.name}"


def _not_empty(run_dir: Location) -> RequestError:
    return RequestError(
        "the run folder is not empty",
        file=str(run_dir),
        hint="choose another folder, by --output, or continue with `alray resume`",
    )


def new_token() -> str:
    """A name for what one command runs, which nothing else has."""
    return f"alray-{secrets.token_hex(6)}"


@contextmanager
def writing_to(run_dir: Location) -> Iterator[None]:
    """Raise a RunError where the block fails because the run folder was deleted or can no longer be written."""
    try:
        yield
    except OSError as error:
        require_not_deleted(run_dir)
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise DiskFault(
                f"the run folder can no longer be written: {error.strerror}",
                file=str(run_dir),
                hint="make it writable; then `alray resume` continues from the last checkpoint",
            ) from error
        raise


def require_not_deleted(run_dir: Location) -> None:
    """Raise RunError if the run folder was deleted. On object storage nothing is asked: each question costs."""
    if isinstance(run_dir, Path) and not run_dir.is_dir():
        raise RunError(
            "the run folder was deleted during the run",
            file=str(run_dir),
            hint="begin again with `alray run`",
        )


def mark(run_dir: Location, token: str) -> None:
    """Write the token to the file `.run`. A stage reads it to check that its node sees this folder."""
    replace_file(run_dir / _MARK, token)


def remove_partial(run_dir: Location) -> None:
    """Delete what killed processes had half written of checkpoints and of the files of the run.

    Whoever calls it holds the lock and has marked the folder. Files of a report stay, which is written without the
    lock. Object storage has no half-written files.
    """
    if isinstance(run_dir, Path):
        own = [f"{name}.*{disk.PARTIAL}" for name in (*_BEFORE_RECORDS, "summary.json", "trackers.json")]
        for pattern in (*own, f"checkpoints/step-*/*{disk.PARTIAL}"):
            for file in run_dir.glob(pattern):
                disk.remove_file(file)


def is_marked(run_dir: Location, token: str) -> bool:
    """Whether this node sees the run folder that was marked with the token."""
    file = run_dir / _MARK
    return file.is_file() and file.read_text(encoding="utf-8") == token


def require_own(run_dir: Location, token: str) -> None:
    """Raise RunError if another process has marked the run folder since: it continues this run.

    On a disk the lock keeps others out. Object storage has none, nor have some file systems.
    """
    try:
        found = (run_dir / _MARK).read_text(encoding="utf-8")
    except FileNotFoundError:  # the folder was deleted
        return
    if found != token:
        raise RunError(
            "another process has started to continue this run, from its last checkpoint; this one ends",
            file=str(run_dir),
            hint="let the other one continue, or stop it and `alray resume` the run",
        )


def write_manifest(
    run_dir: Location,
    *,
    step: int,
    epoch: float,
    samples: int,
    partition: Sequence[int],
    files: Sequence[ComponentFile],
    environment: dict[str, Any],
    shares: Sequence[int] = (),
    standing: Standing | None = None,
    data: DataIdentity,
) -> dict[str, Any]:
    """Write the manifest of the checkpoint after `step` mini-batches, which completes it; return it.

    Args:
        shares: samples of the next mini-batch for each replica; empty if the shares do not change during the run.
        standing: of the evaluations until then.
        data: what tells the data from others.
    """
    manifest = {
        "version": 1,
        "step": step,
        "epoch": epoch,
        "samples": samples,
        "partition": list(partition),
        "environment": environment,
        **({"shares": list(shares)} if shares else {}),
        "data": data.model_dump(mode="json"),
        "evaluations": (standing or Standing()).model_dump(mode="json", exclude={"best": {"checkpoint"}}),
        "files": [asdict(entry) for entry in sorted(files, key=lambda entry: entry.file)],
    }
    write_json(checkpoint_folder(run_dir, step) / MANIFEST, manifest)
    for above in (run_dir / "checkpoints", run_dir):  # the names of these folders may be new
        sync_folder(above)
    return manifest


def manifests(run_dir: Location) -> list[dict[str, Any]]:
    """Manifests of all complete checkpoints, oldest first. One that a run deletes meanwhile is left out.

    Raises CheckpointError if one is damaged.
    """
    found = []
    for step, names in _files(run_dir).items():
        if MANIFEST not in names:
            continue
        path = checkpoint_folder(run_dir, step) / MANIFEST
        hint = f"delete the folder {path.parent.name} to use the checkpoint before it"
        try:
            manifest = read_json(path, _Manifest, hint)
        except FileNotFoundError:
            continue
        if manifest.step != step:
            at = f"{manifest.step:,} mini-batches"
            message = f"not written by alray: this is the manifest of the checkpoint after {at}"
            raise CheckpointError(message, file=str(path), hint=hint)
        found.append(manifest.model_dump(mode="json", exclude_unset=True))
    return sorted(found, key=lambda manifest: int(manifest["step"]))


def _files(run_dir: Location) -> dict[int, set[str]]:
    """The files of each checkpoint, complete or not, by step. Any other file next to them belongs to the user."""
    found: dict[int, set[str]] = {}
    for file in (run_dir / "checkpoints").glob("step-*/*"):  # on object storage this is one request
        digits = file.parent.name.removeprefix("step-")
        if digits.isdecimal() and file.parent.name == step_folder(int(digits)):
            found.setdefault(int(digits), set()).add(file.name)
    return found


def standing_of(manifest: dict[str, Any]) -> Standing:
    """The state of the run's evaluations at this checkpoint."""
    return Standing.model_validate(manifest["evaluations"])


def data_of(manifest: dict[str, Any] | None) -> DataIdentity | None:
    """The data that the run had trained on until this checkpoint; None if there is none."""
    return None if manifest is None else DataIdentity.model_validate(manifest["data"])


def has_checkpoint(run_dir: Location, step: int) -> bool:
    """Whether there is a complete checkpoint after `step` mini-batches."""
    return (checkpoint_folder(run_dir, step) / MANIFEST).is_file()


def latest_manifest(run_dir: Location) -> dict[str, Any] | None:
    """The manifest of the newest complete checkpoint; None if there is none yet."""
    complete = manifests(run_dir)
    return complete[-1] if complete else None


def prune(run_dir: Location, keep: int, newest: dict[str, Any]) -> None:
    """Keep the newest `keep` complete checkpoints, and the one with the best metric of the validation set. Delete older
    ones, and incomplete ones that came before the newest.

    A manifest goes before its folder, also where the power is cut, so that no manifest describes files that are gone.

    Args:
        newest: manifest of the last checkpoint. No other manifest is read: on object storage each question costs.
    """
    files = _files(run_dir)
    complete = sorted(step for step, names in files.items() if MANIFEST in names)
    best = standing_of(newest).best
    retained = {*complete[-keep:], *([best.step] if best is not None else [])}
    for step in files:
        if step not in retained and step < newest["step"]:
            folder = checkpoint_folder(run_dir, step)
            if MANIFEST in files[step]:
                remove_file(folder / MANIFEST)
                sync_folder(folder)
            remove_folder(folder)


def require_run_dir(run_dir: Location) -> Location:
    """The folder's absolute path. Raises CheckpointError if no run made this folder."""
    if not run_dir.is_dir():
        raise no_such_run_folder(run_dir)
    if not (run_dir / "spec.yaml").is_file():
        if _ended_at_once(run_dir):
            first = "" if isinstance(run_dir, Path) else "delete this folder and "
            raise CheckpointError(
                "the run in this folder ended before it had written its spec, so there is nothing to continue",
                file=str(run_dir),
                hint=f"{first}begin it again: `alray run SPEC --output` with this folder",
            )
        raise CheckpointError(
            "this is not a run folder: it has no spec.yaml",
            file=str(run_dir),
            hint="name a folder that `alray run` made, such as runs/<name>-<time>",
        )
    return run_dir.resolve()


def _ended_at_once(run_dir: Location) -> bool:
    return (run_dir / _MARK).is_file() or (isinstance(run_dir, Path) and _names(run_dir) == {LOCK})


def no_such_run_folder(run_dir: Location) -> CheckpointError:
    """The error for a run folder that does not exist, or is a file."""
    if run_dir.is_file():
        return CheckpointError(
            "this is a file, not a run folder",
            file=str(run_dir),
            hint="name a folder that `alray run` or `alray study` made; `alray list` shows those below this folder",
        )
    return CheckpointError(
        "no such run folder",
        file=str(run_dir),
        hint="name a folder that `alray run` made; `alray list` shows those below this folder",
    )
