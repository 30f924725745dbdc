"""In a notebook: one output for the progress of a run, and pages inside cells. IPython is a stand-in."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

import alray
from alray.api.notebook import cell_output


class Handle:
    """What `display(..., display_id=True)` gives."""

    def __init__(self, drawn: list[str]) -> None:
        self.drawn = drawn

    def update(self, value: str) -> None:
        self.drawn.append(value)


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Makes this process look like that of a notebook. Each output is the list of what was drawn in it."""
    outputs: list[list[str]] = []

    def display(value: str, *, display_id: bool) -> Handle:
        assert display_id
        outputs.append([value])
        return Handle(outputs[-1])

    class Shell:
        kernel = object()

    main, of_display = ModuleType("IPython"), ModuleType("IPython.display")
    vars(main).update(get_ipython=Shell, display=of_display)
    vars(of_display).update(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", main)
    monkeypatch.setitem(sys.modules, "IPython.display", of_display)
    return outputs


def test_a_run_draws_in_one_output_and_its_results_in_another(tiny: dict[str, Any], outputs: list[list[str]]) -> None:
    alray.run({**tiny, "name": "tiny"}, inline=True)
    drawn, results = outputs
    assert "weights_sha256" in results[-1]
    assert len(drawn) > 3
    assert "reading the spec" in drawn[0]
    assert "2 stages [1, 2], streamed: predicted" in drawn[-1]
    assert "mini-batch 18 of 18" in drawn[-1]
    assert "after mini-batch 18: train" in drawn[-1]


def test_what_is_drawn_is_text(tiny: dict[str, Any], outputs: list[list[str]]) -> None:
    with pytest.raises(alray.AlrayError):
        alray.run({**tiny, "data": {"source": "image_folder", "train": "<script>"}}, inline=True)
    assert "<script>" not in "".join(outputs[0] if outputs else [])


def test_without_progress_nothing_is_drawn(tiny: dict[str, Any], outputs: list[list[str]]) -> None:
    alray.plan(tiny, progress=False)
    assert outputs == []


def test_ipython_in_a_terminal_is_no_notebook(outputs: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", object)
    assert cell_output() is None
