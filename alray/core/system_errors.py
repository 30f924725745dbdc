"""Errors of the operating system: what ran out or could not be written, and how to correct it."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alray.core.errors import AlrayError, DiskFault, RequestError, SystemFault

_OF_LIBRARIES = ("failed to map segment", "cannot allocate memory", "std::bad_alloc")
NO_HOST_MEMORY = ("not enough memory", "can't allocate memory")
NO_GPU_MEMORY = ("out of memory", "_alloc_failed", "_allocation_failed")
"""Parts of torch's messages, in lower case. The errors of the CPU allocator are plain RuntimeErrors, and so are those
of libraries that take memory of the GPU themselves: CUBLAS_STATUS_ALLOC_FAILED, CUDNN_STATUS_ALLOC_FAILED,
CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED."""
_OF_GPUS = ("cuda", "cudnn", "hip", "xpu")
_NO_DESCRIPTORS = ("too many open files",)
_NO_THREAD = ("can't start new thread", "resource temporarily unavailable")
_TWICE = "can only be initialized once per process"  # torch, after a first import that found no room
_UNLIMITED = "unlimited"
_LINK_IN_A_CIRCLE = "Symlink loop"  # Path.resolve, up to Python 3.12
_OF_DISKS = (errno.EROFS, errno.EIO, errno.ESTALE, errno.EACCES, errno.EPERM)


@contextmanager
def system_faults() -> Iterator[None]:
    """Inside, a fault of the operating system becomes an error of alray."""
    try:
        yield
    except (OSError, MemoryError, ImportError, RuntimeError) as fault:
        known = from_system(fault)
        if known is None:
            raise
        raise known from fault


def require_current_folder() -> None:
    """Raise RequestError if the current folder was deleted. Libraries in C end a process that has none."""
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise RequestError(
            "the current folder was deleted", hint="go to one that exists, or to the new one of that name, with `cd`"
        ) from error


def from_system(fault: BaseException) -> AlrayError | None:
    """The error to report for a fault that comes from the operating system; None for any other fault."""
    if str(fault).startswith(_LINK_IN_A_CIRCLE) or (isinstance(fault, OSError) and fault.errno == errno.ELOOP):
        name = _file(fault) or str(fault).partition("'")[2].rpartition("'")[0]
        return RequestError(
            "this symbolic link leads back to itself", file=name, hint="replace it by what it is to lead to"
        )
    known = ran_out(fault)
    if known is not None or not isinstance(fault, OSError) or fault.errno is None:
        return known
    if fault.errno == errno.ENAMETOOLONG:
        return RequestError("no file can have so long a name", file=_file(fault), hint="give a shorter one")
    kind = DiskFault if fault.errno in _OF_DISKS else SystemFault
    return kind(
        f"{fault.strerror or fault}",
        file=_file(fault),
        hint="restore the folder and the right to write to it; a run continues with `alray resume`",
    )


def ran_out(fault: BaseException) -> SystemFault | None:
    """The error to report where memory, file descriptors, threads or room on the disk ran out; None for other faults.
    Memory may be that of a GPU.

    Libraries in C report what ran out in ImportErrors and RuntimeErrors, so their texts are read too.
    """
    text = str(fault).lower()
    number = fault.errno if isinstance(fault, OSError) else None
    of_torch = isinstance(fault, RuntimeError)
    tells = (*_OF_LIBRARIES, *(NO_HOST_MEMORY if of_torch else ()))
    if isinstance(fault, MemoryError) or number == errno.ENOMEM or any(tell in text for tell in tells):
        return _no_memory()
    of_gpu = type(fault).__name__ == "OutOfMemoryError" or any(name in text for name in _OF_GPUS)
    if of_torch and of_gpu and any(tell in text for tell in NO_GPU_MEMORY):
        hint = "end other programs that use it, or hide it (CUDA_VISIBLE_DEVICES=) to compute on the processor"
        return SystemFault("the GPU ran out of memory", hint=hint)
    if number in (errno.EMFILE, errno.ENFILE) or any(tell in text for tell in _NO_DESCRIPTORS):
        return SystemFault(
            f"ran out of file descriptors: `ulimit -n` allows {_limit(resource.RLIMIT_NOFILE)}",
            hint="allow more, such as `ulimit -n 4096`",
        )
    if number == errno.EAGAIN or any(tell in text for tell in _NO_THREAD):
        return SystemFault(
            f"no new thread or process could be started: `ulimit -u` allows {_limit(resource.RLIMIT_NPROC)}, "
            f"`ulimit -v` {_address_space()}",
            hint="allow more, or end other programs",
        )
    if _TWICE in text and resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        return _no_memory()
    if number in (errno.ENOSPC, errno.EDQUOT):
        return DiskFault("the disk is full", file=_file(fault), hint="make room; a run continues with `alray resume`")
    if number == errno.EFBIG:
        return DiskFault(
            f"a file may not become so large: `ulimit -f` allows {_limit(resource.RLIMIT_FSIZE)} bytes",
            file=_file(fault),
            hint="allow more, such as `ulimit -f unlimited`; a run continues with `alray resume`",
        )
    return None


def _file(fault: BaseException) -> str | None:
    name = fault.filename if isinstance(fault, OSError) else None
    return os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else None


def _no_memory() -> SystemFault:
    limit = _address_space()
    if limit == _UNLIMITED:
        return SystemFault("ran out of memory", hint="end other programs, or use a smaller model or data.batch_size")
    return SystemFault(
        f"ran out of address space: `ulimit -v` allows {limit}",
        hint="allow more, such as `ulimit -v unlimited`: the libraries of torch alone take several gigabytes",
    )


def _limit(which: int) -> str:
    """A limit of this process, as people read it."""
    value = resource.getrlimit(which)[0]
    return _UNLIMITED if value == resource.RLIM_INFINITY else f"{value:,}"


def _address_space() -> str:
    value = resource.getrlimit(resource.RLIMIT_AS)[0]
    return _UNLIMITED if value == resource.RLIM_INFINITY else f"{value // 1024:,} kB"
