"""Files on object storage, by obstore, with the words of pathlib.

An object is written whole or not at all. It cannot be renamed or appended to. There are no folders: a folder is what
the names of objects begin with. Credentials and endpoints come from the environment, as obstore reads them.
"""

from __future__ import annotations

import errno
import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from alray.errors import RequestError, RunError

SCHEMES = ("s3", "gs", "abfs", "abfss")
_FIRST = {"max_retries": 5, "retry_timeout": timedelta(seconds=10)}
"""Until a bucket has answered once, so that a wrong address is reported soon."""
_PATIENCE = {
    "max_retries": 10_000,
    "retry_timeout": timedelta(minutes=5),
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=10), "base": 2},
}
"""After its first answer. A process that asks waits for the answer, so training stops meanwhile."""
_answered: set[str] = set()  # buckets
# Plain HTTP is used only where the environment names an endpoint by `http://`.
_CLIENT = {
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=60),  # the longest time in which no byte arrives
    "timeout": timedelta(days=1),  # of a whole request; obstore's default is 30 s
    "allow_http": True,
}


@dataclass(frozen=True)
class ObjectPath:
    """A file or a folder on object storage. url: without a slash at its end.

    Its methods do what those of `pathlib.Path` do. Those that ask the storage raise RequestError or RunError where it
    does not do what it is asked.
    """

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(self.url.rpartition("/")[0])

    def resolve(self) -> ObjectPath:
        return self

    def mkdir(self, *, exist_ok: bool = False) -> None:
        """There is nothing to make."""

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        with self._asked() as (objects, store):
            try:
                objects.head(store, self._key)
            except FileNotFoundError:
                return False
        return True

    def is_dir(self) -> bool:
        with self._asked() as (objects, store):
            return any(objects.list(store, self._key, chunk_size=1))

    def modified_s(self) -> float:
        """When it was written, as `time.time()` counts. Raises RunError if there is no such object."""
        with self._asked() as (objects, store):
            return float(objects.head(store, self._key)["last_modified"].timestamp())

    def read_bytes(self) -> bytes:
        with self._asked() as (objects, store):
            try:
                return bytes(objects.get(store, self._key).bytes())
            except FileNotFoundError:
                missing = FileNotFoundError(errno.ENOENT, "No such object", self.url)
        raise missing

    def read_text(self, encoding: str) -> str:
        return self.read_bytes().decode(encoding)

    def write_bytes(self, content: bytes) -> None:
        """Write the object, also where there is one. A reader finds the old one or the new one, never a part."""
        with self._asked() as (objects, store):
            objects.put(store, self._key, content)

    def create(self, content: bytes) -> bool:
        """Write the object if there is none yet; return whether there was none. Of several writers one succeeds."""
        with self._asked() as (objects, store):
            try:
                objects.put(store, self._key, content, mode="create")
            except objects.exceptions.AlreadyExistsError:
                return False
        return True

    def unlink(self, *, missing_ok: bool) -> None:
        """Delete the object. missing_ok: must be true, for S3 does not say whether there was one."""
        assert missing_ok
        with self._asked() as (objects, store), suppress(FileNotFoundError):
            objects.delete(store, self._key)

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """The files and folders in this folder whose names match a pattern without slashes, in the order of names."""
        with self._asked() as (objects, store):
            found = objects.list_with_delimiter(store, self._key)
        keys = [*found["common_prefixes"], *(meta["path"] for meta in found["objects"])]
        for name in sorted({key.rstrip("/").rpartition("/")[2] for key in keys}):
            if fnmatchcase(name, pattern):
                yield self / name

    def below(self) -> list[str]:
        """The names of all objects in this folder and in its folders, relative to it, in order."""
        with self._asked() as (objects, store):
            keys = [meta["path"] for chunk in objects.list(store, self._key) for meta in chunk]
        return sorted(key.removeprefix(f"{self._key}/") for key in keys)

    def remove(self) -> None:
        """Delete all objects in this folder."""
        while names := self.below():
            with self._asked() as (objects, store), suppress(FileNotFoundError):
                objects.delete(store, [f"{self._key}/{name}" for name in names])
                return
            # Google's and Azure's stop at an object that somebody else has deleted meanwhile.

    @property
    def _root(self) -> str:
        """The bucket: scheme and host of the URL."""
        return "/".join(self.url.split("/")[:3])

    @property
    def _key(self) -> str:
        """The object's name in its bucket."""
        return "/".join(self.url.split("/")[3:])

    @contextmanager
    def _asked(self) -> Iterator[tuple[Any, Any]]:
        """The module `obstore` and the bucket. What obstore raises in the block becomes an error of alray."""
        objects = _obstore(self.url)
        try:
            yield objects, _bucket(self._root, patient=self._root in _answered)
            _answered.add(self._root)
        except (FileNotFoundError, objects.exceptions.BaseError) as error:
            raise RunError(
                f"the object storage did not do what it was asked: {_first_line(error)}",
                file=self.url,
                mend="check the bucket, the network, and the credentials and endpoint in the environment",
            ) from error


def _first_line(error: Exception) -> str:
    """What obstore says, without the document that S3 answers with."""
    return str(error).strip().splitlines()[0].partition(": <?xml")[0].strip()


def _obstore(url: str) -> Any:
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES or len(url.split("/")) < 4:
        raise RequestError(
            "this is no folder on object storage",
            file=url,
            mend=f"name one as s3://bucket/folder; {', '.join(f'{known}://' for known in SCHEMES)} are known",
        )
    try:
        return importlib.import_module("obstore")
    except ModuleNotFoundError as error:
        raise RequestError(
            f"object storage needs the library `{error.name}`, which is not installed",
            file=url,
            mend="pip install 'alray[storage]'",
        ) from error


@cache
def _bucket(root: str, *, patient: bool) -> Any:
    from_url = importlib.import_module("obstore.store").from_url
    return from_url(root, client_options=_CLIENT, retry_config=_PATIENCE if patient else _FIRST)
