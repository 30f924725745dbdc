"""The cut that a plan has is the best one, and no cut is below its bound: every cut is predicted."""

from __future__ import annotations

from alray.planning.schedules.table import SCHEDULES
from benchmarks.brute_force import chain, summary_of


def test_a_chain_of_each_schedule() -> None:
    chains = [chain(number, most=7) for number in range(12)]
    assert {each.schedule for each in chains} == {name for name, each in SCHEDULES.items() if not each.one_stage}
    assert [each for each in chains if not each.is_right] == []
    assert summary_of(chains)["best"] == summary_of(chains)["called_best"] == 1.0
