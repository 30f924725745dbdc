"""The hash that shows whether two runs ended in the same bits."""

from __future__ import annotations

import hashlib
import json
import struct

from alray.core.errors import CheckpointError
from alray.core.storage.location import Location


def weights_sha256(folder: Location, num_components: int) -> str:
    """SHA-256 over every parameter and buffer of a checkpoint: components in order, names in the order of `weights()`.

    For each tensor, its name (`f.0.weight`) and then its little-endian bytes. Read from the files without torch.
    Raises CheckpointError for a file that alray did not write.
    """
    digest = hashlib.sha256()
    for index in range(num_components):
        file = folder / f"component-{index:02d}.safetensors"
        content = file.read_bytes()
        try:
            (header_bytes,) = struct.unpack("<Q", content[:8])
            header = json.loads(content[8 : 8 + header_bytes])
            body = memoryview(content)[8 + header_bytes :]
            for name in header["__metadata__"]["order"].splitlines():
                begin, end = header[name]["data_offsets"]
                digest.update(name.encode())
                digest.update(body[begin:end])
        except (struct.error, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(
                "these are not weights that alray wrote", file=str(file), hint="restore this file, or name another run"
            ) from error
    return digest.hexdigest()
