"""Where random numbers come from: a seed for each purpose, never a stream that two things share."""

from __future__ import annotations

import hashlib


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed that is a function of the run's seed and of what it is for.

    Two purposes never share a stream, so nothing that draws can shift what something else draws.
    """
    text = "/".join([str(seed), *(str(part) for part in purpose)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
