"""Output that nobody reads any more, of `alray run ... | head` or a closed terminal, or that a full disk does not take.

It ends the output and nothing else: a run continues to its end or its checkpoint, and its exit code says how it ended.
Where the disk took no more, a command that succeeded otherwise ends with 1.
"""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STANDARD_STREAMS = 3
_NOBODY_READS = (errno.EPIPE, errno.EIO)  # a pipe, a terminal

unwritten: list[OSError] = []
"""Why output of this process could not be written, although somebody may wait for it."""


class _WhileRead(io.FileIO):
    """A file descriptor for writing that leads to /dev/null once nothing more can be written to it."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _NOBODY_READS:
                unwritten.append(error)
        lead_nowhere(self.fileno())
        return memoryview(data).nbytes


def take_closed_descriptors() -> None:
    """Open /dev/null in place of those of the three standard streams that are closed, as after `alray ... >&-`.

    Otherwise a file that is opened later gets the number, and what a library in C prints is written into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < _STANDARD_STREAMS:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def lasting(stream: TextIO | None) -> TextIO:
    """The stream, so that writing to it raises no error once nobody reads it or the disk is full.

    One without a file descriptor, such as a test's or a notebook's, is returned as it is. None is what Python has for a
    stream that was closed before it started.
    """
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_WhileRead(descriptor, "wb", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
    )


def lead_nowhere(descriptor: int) -> None:
    """Lead a file descriptor to /dev/null."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
