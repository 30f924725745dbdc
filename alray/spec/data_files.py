"""Which keys of `data` say where its files lie, and not what they are."""

from __future__ import annotations

from collections.abc import Iterator

from alray.spec.composition import is_path
from alray.spec.data import DataSection, Torchvision
from alray.spec.grammar import hints
from alray.spec.section import Section


def keys_of_files(data: DataSection) -> frozenset[str]:
    """The keys in `data` whose values are paths, such as `train` and `text.tokenizer`, and whether files that are
    missing are downloaded. The same files in another place are the same data."""
    return frozenset([*_paths(data), *(["download"] if isinstance(data, Torchvision) else [])])


def _paths(section: Section, around: str = "") -> Iterator[str]:
    for key, hint in hints(type(section)).items():
        value = getattr(section, key)
        if isinstance(value, Section):
            yield from _paths(value, f"{around}{key}.")
        elif is_path(str(value), hint):
            yield around + key
