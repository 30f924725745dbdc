"""Files that grow: records and logs.

On a disk they are appended to. An object cannot grow, so on object storage such a file is a folder of parts, which are
numbered: `records.jsonl` is `records/000001.jsonl`, `records/000002.jsonl` and so on.

A folder that somebody copies from one to the other may have both. Then the file comes before the parts, and a part that
the file holds does not count.
"""

from __future__ import annotations

import io
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Event, Lock, Thread

from alray.core.errors import RunError
from alray.core.storage import disk
from alray.core.storage.location import Location, publish, remove_file, require_file
from alray.core.storage.objects import ObjectPath

_PART_S = 20.0
"""A part is written after so many seconds, or when the file is flushed."""
_COPY_S = 5.0
_BLOCK = 1 << 20
_READERS = 16
_DIGITS = 6  # of the number of a part

_copies = ExitStack()  # never closed: Python deletes temporary folders when it ends


class Appending(io.TextIOBase, ABC):
    """A file that is open to append text to it."""

    @abstractmethod
    def sync(self) -> None:
        """Wait until all that was written outlasts a power cut."""


def appending(file: Location, require: Callable[[], None] = lambda: None) -> Appending:
    """Open a file to append text to it. On a disk what is written is handed to the system at once; on object storage a
    part is written every 20 s, at `flush` and at the end.

    Args:
        require: is called before a part is written, and raises an error if it must not be.
    """
    if isinstance(file, ObjectPath):
        return _Parts(file, require)
    if parts := _parts(file):
        publish(file, _joined(file, parts))
        for part in parts:
            remove_file(part)
    return _OnDisk(file, disk.open_to_append(file))


def keep_whole_lines(file: Location) -> None:
    """Cut off what a killed process or a power cut has left of a file's last lines. An object is always whole."""
    if isinstance(file, Path) and file.is_file():
        content = file.read_bytes()
        whole = _length_of_lines(content)
        if whole < len(content):
            disk.cut(file, whole)


def lies_at(file: Location) -> Location:
    """The file itself, or the folder of its parts."""
    return _folder(file) if isinstance(file, ObjectPath) else file


def was_appended(file: Location) -> bool:
    """Whether something was written to a file that grows."""
    return bool(_parts(file)) or file.is_file()


def whole_lines(file: Location) -> list[bytes]:
    """The complete lines of a file that grows. Raises FileNotFoundError if there is no such file.

    A line with a byte of zero ends a file: after a power cut that is what was written and had not reached the disk.
    """
    if parts := _parts(file):
        content = _joined(file, parts)
    else:
        require_file(file)
        content = file.read_bytes()
    return content[: _length_of_lines(content)].split(b"\n")[:-1]


@contextmanager
def on_a_disk(folder: Location) -> Iterator[Path]:
    """The folder itself, or until the block ends a copy of it in which each file that grows is one file again."""
    if isinstance(folder, Path):
        yield folder
        return
    wholes: dict[Path, bytes] = {}  # of the files that grow: the content stored as one file, in addition to the parts
    with TemporaryDirectory() as scratch:
        for name in folder.below():  # in order: the file comes before its parts
            parent, _, last = name.rpartition("/")
            number, _, suffix = last.partition(".")
            is_part = len(number) == _DIGITS and number.isdecimal()
            file = Path(scratch, f"{parent}.{suffix}" if is_part else name)
            # A run may have deleted a checkpoint meanwhile. It deletes the manifest first, which is copied
            # last: no manifest is copied without the files that it names.
            with suppress(FileNotFoundError):
                content = (folder / name).read_bytes()
                file.parent.mkdir(parents=True, exist_ok=True)
                if is_part and file not in wholes:
                    wholes[file] = _whole(file)
                if not (is_part and content in wholes[file]):
                    with file.open("ab") as copy:
                        copy.write(content)
        yield Path(scratch)


def local_copy(folder: Location) -> Path:
    """As `on_a_disk`, until this process ends."""
    return _copies.enter_context(on_a_disk(folder))


@contextmanager
def opened_log(file: Location, warn: Callable[[str], None]) -> Iterator[int]:
    """A file descriptor to append to a log with. On object storage what it has received is written every 5 s.

    Args:
        warn: is called once, from any thread, if the storage refuses the content. Writing is tried again as long as the
            block runs, and raises no error.
    """
    if isinstance(file, Path):
        file.parent.mkdir(exist_ok=True)  # a run folder that was deleted is not made again
        descriptor = disk.open_to_append(file)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
        return
    # Not a pipe: whoever writes to a full pipe while it holds Python's lock would wait for its reader for ever.
    with TemporaryFile(buffering=0) as here:
        copy, ended = _CopyToObject(here.fileno(), file, warn), Event()
        copier = Thread(target=copy.run, args=(ended,), name=f"copy-{file.name}", daemon=True)
        copier.start()
        try:
            yield here.fileno()
        finally:
            ended.set()
            copier.join()
            copy.take()


class _OnDisk(Appending):
    def __init__(self, file: Path, descriptor: int) -> None:
        self._file = file
        self._descriptor = descriptor

    def write(self, text: str, /) -> int:
        disk.write_all(self._descriptor, text.encode("utf-8", "backslashreplace"), self._file)
        return len(text)

    def sync(self) -> None:
        disk.sync(self._descriptor, self._file)

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


class _Parts(Appending):
    """Text for object storage, kept until it is written as the next part."""

    def __init__(self, file: ObjectPath, require: Callable[[], None]) -> None:
        self._numbered = _Numbered(file)
        self._require = require
        self._held: list[bytes] = []
        self._written_s = time.monotonic()
        self._lock = Lock()

    def write(self, text: str, /) -> int:
        self._held.append(text.encode("utf-8", "backslashreplace"))
        if time.monotonic() - self._written_s > _PART_S:
            self.flush()
        return len(text)

    def flush(self) -> None:
        """Write what was kept as a part."""
        with self._lock:
            self._written_s = time.monotonic()
            number = len(self._held)
            if number:
                self._require()
            self._numbered.add(b"".join(self._held[:number]))
            del self._held[:number]

    def sync(self) -> None:
        self.flush()


class _Numbered:
    """Writes the parts of a file. Several writers may append to one file."""

    def __init__(self, file: ObjectPath) -> None:
        self._file = file
        self._number = max((int(part.name.partition(".")[0]) for part in _parts(file)), default=0)

    def add(self, content: bytes) -> None:
        """Write the next part."""
        number = self._number
        while content:
            number += 1
            part = _part(self._file, number)
            # A part of this name is another writer's, or this one, written by a request whose answer was lost.
            if part.create(content) or part.read_bytes() == content:
                break
        self._number = number


@dataclass
class _CopyToObject:
    """Copies what a file of this machine receives into parts."""

    descriptor: int
    file: ObjectPath
    warn: Callable[[str], None]

    def __post_init__(self) -> None:
        self._parts = _Numbered(self.file)
        self._taken = 0
        self._warned = False

    def take(self) -> None:
        """Copy what came since the last time; next time, if the storage does not take it."""
        try:
            while content := os.pread(self.descriptor, _BLOCK, self._taken):
                self._parts.add(content)
                self._taken += len(content)
        except RunError as error:
            if not self._warned:
                self.warn(f"the log {self.file} cannot be written, and the run continues without it: {error}")
            self._warned = True

    def run(self, ended: Event) -> None:
        while not ended.wait(_COPY_S):
            self.take()


def _folder(file: Location) -> Location:
    return file.parent / file.name.rpartition(".")[0]


def _part(file: ObjectPath, number: int) -> ObjectPath:
    stem, _, suffix = file.name.rpartition(".")
    return file.parent / stem / f"{number:0{_DIGITS}d}.{suffix}"


def _parts(file: Location) -> list[Location]:
    """The parts of a file, in order."""
    return sorted(_folder(file).glob(f"{'[0-9]' * _DIGITS}.*"), key=lambda part: part.name)


def _whole(file: Location) -> bytes:
    """The whole lines of a file that was copied here; none if there is no such file."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return b""
    return content[: _length_of_lines(content)]


def _length_of_lines(content: bytes) -> int:
    """How many bytes the whole lines before the first byte of zero have."""
    zero = content.find(b"\0")
    return content.rfind(b"\n", 0, zero if zero >= 0 else len(content)) + 1


def _joined(file: Location, parts: Sequence[Location]) -> bytes:
    """The lines of a file and of its parts, each line once: a file that was copied may hold some parts already."""
    whole = _whole(file)
    with ThreadPoolExecutor(_READERS) as readers:
        contents = list(readers.map(lambda part: part.read_bytes(), parts))
    return whole + b"".join(content for content in contents if content not in whole)
