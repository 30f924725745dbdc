"""Reads text files in UTF-8, with line ends that are all equal. An error names the line that is not UTF-8, or what a
file is that is no text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from alray.core.errors import DataError

_UNPACK = "unpack it, and give the file within"
_AS_CSV = "save what you need of it as CSV, in UTF-8"
_IN_UTF_8 = "save it as UTF-8"
_NO_TEXT = {
    rb"\x1f\x8b": ("compressed by gzip", _UNPACK),
    rb"BZh[1-9]1AY&SY": ("compressed by bzip2", _UNPACK),
    rb"\xfd7zXZ\x00": ("compressed by xz", _UNPACK),
    rb"\x28\xb5\x2f\xfd": ("compressed by zstd", _UNPACK),
    rb"\x04\x22\x4d\x18": ("compressed by lz4", _UNPACK),
    rb"7z\xbc\xaf\x27\x1c": ("a 7z archive", _UNPACK),
    rb"PK\x03\x04": ("a zip archive, as a workbook (.xlsx, .ods) is", "save the sheet as CSV, or unpack the archive"),
    rb"\xd0\xcf\x11\xe0": ("a workbook (.xls)", "save the sheet as CSV"),
    rb"PAR1": ("a Parquet file", "give it the ending .parquet, as a table"),
    rb"ARROW1": ("an Arrow file", _AS_CSV),
    rb"\x89HDF": ("an HDF5 file", _AS_CSV),
    rb"\x93NUMPY": ("an array of NumPy", _AS_CSV),
    rb"SQLite format 3\x00": ("a database of SQLite", _AS_CSV),
    rb"%PDF-": ("a PDF file", "give its text"),
    rb"\x89PNG|\xff\xd8\xff|GIF8": ("a picture", "pictures are read by the source image_folder, from a folder"),
    rb"\xff\xfe|\xfe\xff|.\x00": ("text in UTF-16 or UTF-32", _IN_UTF_8),
    rb"\x00": ("no text: it begins with a byte 0", _IN_UTF_8),
}
"""By how a file begins: what it is, and what to do."""


def require_text(beginning: bytes, path: Path) -> None:
    """Raise DataError, which says what a file is, if it begins as one that is no text in UTF-8."""
    for pattern, (what, hint) in _NO_TEXT.items():
        if re.match(pattern, beginning, re.DOTALL):
            raise DataError(f"this file is {what}", file=str(path), hint=hint)


def read_text(path: Path) -> str:
    """Return the content of a file with equal line ends. Raises DataError if it cannot be read or is no text in
    UTF-8."""
    if path.exists() and not path.is_file():  # it may have no end, or wait for ever
        raise DataError("this is a folder, a pipe or a device, not a file", file=str(path), hint="give a file of text")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=str(path), hint="give a readable file") from error
    require_text(content, path)
    try:
        return equal_line_ends(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise _not_utf8(error, path, len((content[: error.start] + b"?").splitlines())) from error


def equal_line_ends(text: str) -> str:
    """The text with "\n" at the end of every line, where Windows writes "\r\n" and old files have "\r"."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def decoded_lines(file: Iterable[bytes], path: Path) -> Iterator[str]:
    """Yield the decoded lines of the file `path`, with their line ends: "\\n", "\\r\\n", or "\\r" of old files.

    Raises DataError if it is no text, or if a line is not UTF-8.
    """
    for number, line in enumerate(_lines(file), start=1):
        if number == 1:
            require_text(line, path)
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
