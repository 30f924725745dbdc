"""Every page of figures is what its writer makes from the committed results: nobody edits a figure by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import accuracy_page, all_reduce_page, schedules_page, tables

PAGES = (
    (tables, tables.main),
    (schedules_page, schedules_page.write_page),
    (accuracy_page, accuracy_page.write_page),
    (all_reduce_page, all_reduce_page.write_page),
)


@pytest.mark.parametrize(("module", "write"), PAGES, ids=[module.__name__ for module, _ in PAGES])
def test_a_page_is_what_its_results_give(
    module: ModuleType, write: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = module.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(module, "PAGE", tmp_path / "page.md")
    write()
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == committed
