"""Parts are found by their files and folders: what one must have, and what it is called."""

from __future__ import annotations

from types import ModuleType
from typing import Any, get_args

import pytest

from alray.config.sections.kind import Kind, PartSection
from alray.config.sections.spec import KINDS
from alray.core.parts import class_in, module_of, names_of
from alray.planning.schedules.table import SCHEDULES

PARTS = [(kind, name, section) for kind in KINDS for name, section in kind.sections.items()]


@pytest.mark.parametrize(("kind", "name", "section"), PARTS, ids=[f"{kind.name}/{name}" for kind, name, _ in PARTS])
def test_a_part_is_called_as_its_file_or_folder_and_has_its_code(
    kind: Kind[Any], name: str, section: type[PartSection]
) -> None:
    assert get_args(section.model_fields[kind.key].annotation) == (name,)
    assert section.__doc__
    if section.implementation:
        *file, attribute = section.implementation.split(":")
        assert callable(getattr(module_of(kind.name, name, *file), attribute))


def test_schedules_are_found_too() -> None:
    assert len(SCHEDULES) == len(names_of("schedules"))


def test_a_file_has_one_class_of_its_kind() -> None:
    module = ModuleType("two")
    for name in ("First", "Second"):
        setattr(module, name, type(name, (PartSection,), {"__module__": "two", "__annotations__": {}}))
    with pytest.raises(TypeError, match="two must have one class derived from PartSection"):
        class_in(module, PartSection)
