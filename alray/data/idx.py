"""IDX files, the format of MNIST and its kin: plain or compressed by gzip."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy
import torch
from torch import Tensor

from alray.errors import DataError

_UNSIGNED_BYTE = 0x08


def read_idx(path: Path, num_dimensions: int) -> Tensor:
    """The uint8 array of `num_dimensions` dimensions that a file holds. Raises DataError on anything else."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(path, str(error)) from error
    header = 4 + 4 * num_dimensions
    if len(content) < header or content[:4] != bytes((0, 0, _UNSIGNED_BYTE, num_dimensions)):
        raise _damaged(path, f"it does not begin as an IDX file of bytes in {num_dimensions} dimensions does")
    shape = struct.unpack(f">{num_dimensions}I", content[4:header])
    if len(content) - header != math.prod(shape):
        raise _damaged(path, f"{list(shape)} values were announced and {len(content) - header} are there")
    return torch.from_numpy(numpy.frombuffer(content, numpy.uint8, offset=header).reshape(shape).copy())


def _damaged(path: Path, why: str) -> DataError:
    return DataError(f"damaged IDX file: {why}", file=str(path), mend="remove the file and fetch it anew")
