"""Files on object storage, by obstore, with the methods of pathlib.

An object is written whole or not at all. It cannot be renamed or appended to. There are no folders: a folder is what
the names of objects begin with. Credentials and endpoints come from the environment, as obstore reads them.
"""

from __future__ import annotations

import errno
import importlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import Any, TypeVar

from alray.core.errors import RequestError, RunError

T = TypeVar("T")

SCHEMES = ("s3", "gs", "abfs", "abfss")
_FIRST_S = 10.0
"""How long a request to a bucket that has not answered yet is retried, so that a wrong address is reported soon."""
_PATIENCE_S = 300.0
"""How long a request to a bucket that has answered before is retried. The caller waits, so training stops meanwhile."""
_patience_s: dict[str, float] = {}
"""How long requests to each bucket are retried. Zero after one failed, so that the end of a run does not wait again."""
_RETRIES: dict[str, Any] = {
    "max_retries": 10_000,
    "retry_timeout": timedelta(seconds=2),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(milliseconds=500), "base": 2},
}
"""How often and how long obstore itself tries each part of a large object. Python hears no Ctrl-C meanwhile, so obstore
gives up soon and is called again."""
_AGAIN_S = 0.5
_AWAY = re.compile(r"HTTP error: |status code: (429|50[0234]) ")
"""So obstore's message says that no answer came, or only a part of one, or that the storage has too much to do."""
# Plain HTTP is used only where the environment names an endpoint by `http://`.
_CLIENT = {
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=60),  # the longest time in which no byte arrives
    "timeout": timedelta(days=1),  # of a whole request; obstore's default is 30 s
    "allow_http": True,
}


@dataclass(frozen=True)
class ObjectPath:
    """A file or a folder on object storage.

    Its methods do what those of `pathlib.Path` do. Those that use the storage raise RequestError or RunError where it
    does not do what is requested.

    Attributes:
        url: without a slash at its end.
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

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """There is nothing to make."""

    def require_folder(self) -> None:
        """Raise RequestError if this is a bucket, or no URL of object storage at all."""
        if not self._key:
            raise _no_folder(self.url)

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        def head(objects: Any, bucket: Any) -> bool:
            try:
                objects.head(bucket, self._key)
            except FileNotFoundError:
                return False
            return True

        return self._request(head)

    def is_dir(self) -> bool:
        return self._request(lambda objects, bucket: any(objects.list(bucket, self._key or None, chunk_size=1)))

    def read_bytes(self) -> bytes:
        def get(objects: Any, bucket: Any) -> bytes | None:
            try:
                return bytes(objects.get(bucket, self._key).bytes())
            except FileNotFoundError:
                return None

        content = self._request(get)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "No such object", self.url)
        return content

    def read_text(self, encoding: str) -> str:
        return self.read_bytes().decode(encoding)

    def write_bytes(self, content: bytes) -> None:
        """Write the object, also where there is one. A reader finds the old one or the new one, never a part."""
        self._request(lambda objects, bucket: objects.put(bucket, self._key, content))

    def create(self, content: bytes) -> bool:
        """Write the object if there is none yet; return whether there was none. Of several writers one succeeds.

        Where an answer is lost, the request is sent again, and finds the object that it made.
        """

        def put(objects: Any, bucket: Any) -> bool:
            try:
                objects.put(bucket, self._key, content, mode="create")
            except objects.exceptions.AlreadyExistsError:
                return False
            return True

        return self._request(put)

    def unlink(self, *, missing_ok: bool) -> None:
        """Delete the object.

        Args:
            missing_ok: must be true, for S3 does not say whether there was one.
        """
        assert missing_ok
        self._request(partial(_deleted, keys=self._key))

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """The files and folders in this folder whose names match a pattern, in the order of names. With slashes in the
        pattern: the files below it."""
        if "/" in pattern:
            wanted = pattern.split("/")
            for name in self.below():
                parts = name.split("/")
                if len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted)):
                    yield self / name
            return
        found = self._request(lambda objects, bucket: objects.list_with_delimiter(bucket, self._key or None))
        keys = [*found["common_prefixes"], *(meta["path"] for meta in found["objects"])]
        for name in sorted({key.rstrip("/").rpartition("/")[2] for key in keys}):
            if fnmatchcase(name, pattern):
                yield self / name

    def below(self) -> list[str]:
        """The names of all objects in this folder and in its folders, relative to it, in order."""
        keys = self._request(
            lambda objects, bucket: [
                meta["path"] for chunk in objects.list(bucket, self._key or None) for meta in chunk
            ]
        )
        return sorted(key.removeprefix(f"{self._key}/") for key in keys)

    def remove(self) -> None:
        """Delete all objects in this folder. Raises RunError if the storage lists objects that it does not have."""
        before: list[str] = []
        while keys := [f"{self._key}/{name}" for name in self.below()]:
            if keys == before:
                raise RunError(
                    f"the object storage lists `{keys[0]}`, and does not find it to delete it",
                    file=self.url,
                    hint="delete this folder yourself",
                )
            if self._request(partial(_deleted, keys=keys)):
                return
            before = keys  # Google's and Azure's stop at an object that somebody else has deleted meanwhile

    @property
    def _root(self) -> str:
        """The bucket: scheme and host of the URL."""
        return "/".join(self.url.split("/")[:3])

    @property
    def _key(self) -> str:
        """The object's name in its bucket."""
        return "/".join(self.url.split("/")[3:])

    def _request(self, request: Callable[[Any, Any], T]) -> T:
        """Return the answer to a request, which gets the module `obstore` and the bucket.

        After a Ctrl-C no later request waits for the storage. What obstore raises becomes an error of alray.
        """
        try:
            return self._retry(request)
        except KeyboardInterrupt:
            _patience_s[self._root] = 0.0
            raise

    def _retry(self, request: Callable[[Any, Any], T]) -> T:
        """Send a request until there is an answer, for as long as `_patience_s` says.

        obstore does not send every request again whose answer is lost (it does not where the request creates or deletes
        an object). Each of ours may be sent again."""
        objects = _obstore(self.url)
        until_s = time.monotonic() + _patience_s.get(self._root, _FIRST_S)
        while True:
            try:
                answer = request(objects, _bucket(self._root))
            except (FileNotFoundError, objects.exceptions.BaseError) as error:
                away = _AWAY.search(str(error)) is not None
                if away and time.monotonic() < until_s:
                    time.sleep(_AGAIN_S)
                    continue
                _patience_s[self._root] = 0.0 if away else _PATIENCE_S
                raise RunError(
                    f"the object storage did not carry out the request: {_first_line(error)}",
                    file=self.url,
                    hint="check the bucket, the network, and the credentials and endpoint in the environment",
                ) from error
            _patience_s[self._root] = _PATIENCE_S
            return answer


def _deleted(objects: Any, bucket: Any, keys: str | list[str]) -> bool:
    """Delete objects; return whether all of them were there, by what the storage answers."""
    try:
        objects.delete(bucket, keys)
    except FileNotFoundError:
        return False
    return True


def _no_folder(url: str) -> RequestError:
    return RequestError(
        "this is no folder on object storage",
        file=url,
        hint=f"name one as s3://bucket/folder; {', '.join(f'{known}://' for known in SCHEMES)} are known",
    )


def _first_line(error: Exception) -> str:
    """Return the message of obstore without the XML document that S3 answers with."""
    return str(error).strip().splitlines()[0].partition(": <?xml")[0].strip()


def _obstore(url: str) -> Any:
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES or not url.partition("://")[2]:
        raise _no_folder(url)
    try:
        return importlib.import_module("obstore")
    except ModuleNotFoundError as error:
        raise RequestError(
            f"object storage needs the library `{error.name}`, which is not installed",
            file=url,
            hint="pip install 'alray[storage]'",
        ) from error


@cache
def _bucket(root: str) -> Any:
    from_url = importlib.import_module("obstore.store").from_url
    return from_url(root, client_options=_CLIENT, retry_config=_RETRIES)
