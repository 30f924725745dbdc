"""The environments of runs that are compared: were they measured on one machine, with the same versions and data?"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

OF_TIMES = ("device", "host", "torch", "alray")
"""What times depend on."""


def differing(environments: Iterable[Mapping[str, Any]], names: Sequence[str] = OF_TIMES) -> str:
    """What differs among environments: `device: X or Y; torch: 2.1 or 2.15`; empty where nothing does."""
    known = list(environments)
    found = {name: list(dict.fromkeys(each[name] for each in known if each.get(name))) for name in names}
    return "; ".join(f"{name}: {' or '.join(values)}" for name, values in found.items() if len(values) > 1)


def has_other_data(runs: Iterable[tuple[Hashable, Mapping[str, Any]]]) -> bool:
    """Whether runs that should have the same data have other ones.

    Args:
        runs: what decides the data of each run, which is equal for equal data, and its environment.
    """
    found: dict[Hashable, set[str]] = {}
    for key, environment in runs:
        if (sha256 := environment.get("data_sha256")) is not None:
            found.setdefault(key, set()).add(sha256)
    return any(len(hashes) > 1 for hashes in found.values())
