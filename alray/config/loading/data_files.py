"""Which keys of `data` say where its files lie, and not what they are; whether the files are there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from alray.config.loading.composition import is_path
from alray.config.loading.inputs import data_set_exists, inputs_exist
from alray.config.sections.data import DataSection
from alray.config.sections.grammar import key_types
from alray.config.sections.paths import key_text
from alray.config.sections.section import Section
from alray.config.sections.spec import Spec


def keys_of_files(data: DataSection) -> list[str]:
    """The keys in `data` whose values are paths, such as `train` and `text.tokenizer`, and `download`. The same files
    in another folder are the same data."""
    return [*_paths(data), *(["download"] if data.downloads_to is not None else [])]


def missing_files(spec: Spec) -> Iterator[tuple[str, str]]:
    """Each key in `data` whose file or folder is not there, and a message that says so."""
    for path, message, _ in chain(inputs_exist(spec), data_set_exists(spec)):
        if path[0] == "data":
            yield key_text(path[1:]), message


def _paths(section: Section, around: str = "") -> Iterator[str]:
    for key, annotation in key_types(type(section)).items():
        value = getattr(section, key)
        if isinstance(value, Section):
            yield from _paths(value, f"{around}{key}.")
        elif is_path(str(value), annotation):
            yield around + key
