"""Seeds for random numbers: every purpose has a separate seed, so no two purposes share a stream."""

from __future__ import annotations

import hashlib


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed that depends only on the run's seed and the purpose.

    Two purposes never share a stream, so one cannot change the numbers that another one draws.
    """
    text = "/".join([str(seed), *(str(part) for part in purpose)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
