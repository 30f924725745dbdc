"""Runs of equal components measure them once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from alray.plan.costs import Costs
from alray.run import planning
from alray.run.planning import Planner


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batch size of each measurement, which counts instead."""
    sizes: list[int] = []

    def count(planner: Planner, *surroundings: object) -> Costs:
        sizes.append(planner.workload.spec.data.batch_size)
        return planner.costs(probe=False)

    monkeypatch.setattr(planning.Planner, "_measure", count)
    return sizes


def test_only_what_changes_the_costs_is_measured_again(
    make_planner: Callable[..., Planner], measured: list[int], tmp_path: Path
) -> None:
    first = make_planner().costs(probe=True, study=tmp_path)
    for overrides in ([], ["seed=7"], ["optimizer.lr=0.5"], ["run.epochs=3"]):
        assert make_planner(*overrides).costs(probe=True, study=tmp_path) == first
    assert measured == [8]
    for overrides in (["data.batch_size=4"], ["optimizer.weight_decay=0.1"], ["model.components.0.channels=[5]"]):
        make_planner(*overrides).costs(probe=True, study=tmp_path)
    assert measured == [8, 4, 8, 8]
    make_planner().costs(probe=True)
    assert measured == [8, 4, 8, 8, 8]
