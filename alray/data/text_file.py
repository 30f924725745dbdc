"""Files of text in UTF-8; what is not is told with its line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from alray.errors import DataError


def read_text(path: Path) -> str:
    """All of a file. Raises DataError, with the line, where it is not UTF-8 or cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=str(path), mend="give a readable file") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _not_utf8(error, path, content.count(b"\n", 0, error.start) + 1) from error


def decoded_lines(lines: Iterable[bytes], path: Path) -> Iterator[str]:
    """The lines of the file `path`, decoded, line ends kept. Raises DataError at one that is not UTF-8."""
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(error, path, number) from error


def _not_utf8(error: UnicodeDecodeError, path: Path, line: int) -> DataError:
    byte = error.object[error.start]
    return DataError(
        f"byte 0x{byte:02x} is not text in UTF-8", file=str(path), line=line, mend="convert the file to UTF-8"
    )
