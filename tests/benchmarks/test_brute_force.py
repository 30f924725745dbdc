"""The cut that a plan has is the best one, and the bound that it prints holds for all cuts: every cut is predicted."""

from __future__ import annotations

from alray.planning.schedules.table import SCHEDULES
from benchmarks.brute_force import WITHIN, chain, summary_of


def test_a_chain_of_each_schedule() -> None:
    chains = [chain(number, most=7) for number in range(12)]
    assert {each.schedule for each in chains} == {name for name, each in SCHEDULES.items() if not each.one_stage}
    assert [each for each in chains if not each.is_right] == []
    for each in chains:
        assert each.found_s / each.best_s <= each.found_s / each.least_s * (1 + 1e-9), "within the printed bound"
    assert summary_of(chains)["bound_near"] >= 0.95, f"nearly all bounds are within {WITHIN:.0%}"
