"""Reads text files in UTF-8, with line ends that are all equal. An error names the line that is not UTF-8."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from alray.core.errors import DataError


def read_text(path: Path) -> str:
    """Return the content of a file with equal line ends. Raises DataError if it cannot be read or is not UTF-8."""
    if path.exists() and not path.is_file():  # it may have no end, or wait for ever
        raise DataError("this is a folder, a pipe or a device, not a file", file=str(path), hint="give a file of text")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=str(path), hint="give a readable file") from error
    try:
        return equal_line_ends(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise _not_utf8(error, path, len((content[: error.start] + b"?").splitlines())) from error


def equal_line_ends(text: str) -> str:
    """The text with "\n" at the end of every line, where Windows writes "\r\n" and old files have "\r"."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def decoded_lines(file: Iterable[bytes], path: Path) -> Iterator[str]:
    """Yield the decoded lines of the file `path`, with their line ends: "\\n", "\\r\\n", or "\\r" of old files.

    Raises DataError if a line is not UTF-8.
    """
    for number, line in enumerate(_lines(file), start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(error, path, number) from error


def _lines(file: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a file. The first one says whether "\\r" ends lines: in other files that is a damaged cell."""
    ends = False
    for number, line in enumerate(file):
        ends = ends or (number == 0 and b"\r" in line.rstrip(b"\r\n"))
        yield from line.splitlines(keepends=True) if ends else (line,)


def _not_utf8(error: UnicodeDecodeError, path: Path, line: int) -> DataError:
    byte = error.object[error.start]
    return DataError(f"the byte 0x{byte:02x} is not UTF-8", file=str(path), line=line, hint="convert the file to UTF-8")
