"""Which code of a run folder may run without asking: code that this user ran on this machine, and that still lies where
it came from.

A run writes to `code.json` from which folder its code was copied, and the hash of each file. A stranger's folder can
hold any such record, for example one that names a file that came with it. So alray signs the records that it writes
with a key of the user, and a record without this signature counts for nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile

from pydantic import BaseModel, ConfigDict, ValidationError

from alray.config.loading.load import LoadedSpec
from alray.config.loading.own_files import own_files
from alray.config.sections.grammar import marked
from alray.config.sections.own_code import OwnClass
from alray.core.errors import RequestError
from alray.core.run_folder.records import replace_file
from alray.core.storage.location import Location, user_state

CODE, RECORD = "code", "code.json"
"""In a run folder: the copy of the user's code, and where it came from."""
_MOST_NAMED = 20
"""Files that one error names."""
_READ = "read these files; if they may run, pass --allow-code"


class CodeRecord(BaseModel):
    """Where code came from.

    Attributes:
        root: an absolute folder.
        files: the SHA-256 of each file, by its path below the root.
        study: the SHA-256 of a study's text; for a run it is empty.
        signature: of the three, with the user's key.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    root: str
    files: dict[str, str]
    study: str = ""
    signature: str = ""

    @classmethod
    def of(cls, root: Path, files: Iterable[Path], study: str = "") -> CodeRecord:
        """The signed record of these files, which lie below `root`."""
        hashes = hashes_of(root, files)
        return cls(root=str(root), files=hashes, study=study, signature=_signature(str(root), hashes, study))

    @property
    def is_known(self) -> bool:
        """Whether alray wrote this record for this user."""
        return hmac.compare_digest(self.signature.encode(), _signature(self.root, self.files, self.study).encode())


def hashes_of(root: Path, files: Iterable[Path]) -> dict[str, str]:
    """The SHA-256 of each of these files, by its path below `root`."""
    return {file.relative_to(root).as_posix(): sha256(file.read_bytes()) for file in sorted(files)}


def _signature(root: str, files: dict[str, str], study: str) -> str:
    return hmac.digest(_key(), json.dumps([root, files, study]).encode(), "sha256").hex()


_KEY_BYTES = 32


@cache
def _key() -> bytes:
    """The user's key, made when it is first needed.

    Where it cannot be kept, or its file is damaged, it is of this process alone, and a later command asks for
    --allow-code: anybody can sign with an empty key.
    """
    try:
        file = user_state() / "key"
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with NamedTemporaryFile(dir=file.parent) as written:  # nobody else can read it
                written.write(secrets.token_bytes(_KEY_BYTES))
                written.flush()
                os.fsync(written.fileno())
                with suppress(FileExistsError):  # another process was first
                    os.link(written.name, file)
        key = file.read_bytes()
        if len(key) == _KEY_BYTES:
            return key
    except (OSError, RuntimeError):  # it cannot be written or read, or the user has no home folder
        pass
    return secrets.token_bytes(_KEY_BYTES)


def sha256(content: bytes) -> str:
    """The SHA-256 of these bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def write_record(run_dir: Location, record: CodeRecord) -> None:
    """Write where the code of a run came from to its folder."""
    replace_file(run_dir / RECORD, record.model_dump_json(indent=2) + "\n")


def origin_of(run_dir: Location, copy: Path) -> Path:
    """The folder of this machine from which the code of a run came, if the same files lie there as in the run folder.

    Raises RequestError, which names the files and says which would run, if this user did not run code of that folder
    here, or if the two differ.

    Args:
        copy: the code of the run folder, on this machine.
    """
    files, folder = dict(_files(copy)), run_dir / CODE
    record = read_record(run_dir)
    if record is None or not record.is_known:
        raise refused("code that did not run here", files, str(folder), hint=f"{_READ}; then the copy in {folder} runs")
    if differing := list(_differing(copy, files, record)):
        raise refused(
            "code that has changed since it ran here",
            differing,
            str(folder),
            hint=f"--allow-code runs the copy in {folder}; read what has changed in it. "
            f"To run the files of {record.root}, copy them over it: then alray asks nothing",
        )
    return Path(record.root)


def require_no_run_folder(loaded: LoadedSpec) -> None:
    """Raise RequestError, which names the files, if a spec is that of a run folder and names code next to it."""
    references = [reference for _, reference, _ in marked(loaded.spec, OwnClass)]
    if references and (loaded.folder / "environment.json").is_file() and (loaded.folder / "records.jsonl").is_file():
        files = (str(file.relative_to(loaded.folder)) for file in own_files(references, loaded.folder))
        raise refused("code next to the spec of a run folder", sorted(files), str(loaded.folder))


def changed_files(record: CodeRecord) -> list[str]:
    """The files of a record that no longer lie where they came from with the same bytes."""
    return [name for name, sha in record.files.items() if _sha(Path(record.root) / name) != sha]


def named(files: Iterable[str]) -> str:
    """The first of these files, and how many more there are."""
    all_files = list(files)
    more = f" and {len(all_files) - _MOST_NAMED:,} more" if len(all_files) > _MOST_NAMED else ""
    return f"{', '.join(all_files[:_MOST_NAMED])}{more}"


def refused(what: str, files: Iterable[str], folder: str, hint: str = _READ) -> RequestError:
    """The error that names code that may not run.

    Args:
        what: kind of code.
        folder: the folder that brings it.
    """
    return RequestError(
        f"{what} does not run unless it is allowed: {named(files)}",
        file=folder,
        key="--allow-code",
        hint=hint,
    )


def read_record(run_dir: Location) -> CodeRecord | None:
    """The record in a run folder; None if there is none, or something else."""
    file = run_dir / RECORD
    if not file.is_file():
        return None
    try:
        return CodeRecord.model_validate_json(file.read_bytes())
    except ValidationError:
        return None


def _differing(copy: Path, files: dict[str, bool], record: CodeRecord) -> Iterator[str]:
    """The files of a copy that are others where the code came from, and which of the two has changed since it ran."""
    for name in sorted(files.keys() | record.files.keys()):
        sha = _sha(copy / name) if files.get(name, False) else None
        if sha is None or sha != _sha(Path(record.root) / name):
            where = f"or missing in {record.root}" if sha == record.files.get(name, "") else "in the run folder"
            yield f"{name} (changed {where})"


def _files(copy: Path) -> Iterator[tuple[str, bool]]:
    """The files below a folder by name, and whether each is an ordinary file. Bytecode is left out: it is never read
    from a run folder."""
    for folder, folders, names in os.walk(copy):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for path in (Path(folder, name) for name in sorted([*folders, *names])):
            if path.is_symlink() or not path.is_dir():
                yield path.relative_to(copy).as_posix(), path.is_file() and not path.is_symlink()


def _sha(file: Path) -> str | None:
    """The SHA-256 of a file; None if there is none that can be read."""
    try:
        return sha256(file.read_bytes()) if file.is_file() else None
    except OSError:
        return None
