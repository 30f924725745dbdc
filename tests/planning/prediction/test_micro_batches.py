"""`pipeline.micro_batches: auto`: the largest micro-batch that fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from alray.core.errors import PlanError
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.memory import memory_of
from alray.planning.prediction.search import every_cut
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.table import SCHEDULES
from alray.runtime.planner.micro_batches import fewest_micro_batches

Make = Callable[..., Costs]


def need(setting: StepSetting, cut: tuple[int, ...], micro_batches: int) -> int:
    tried = replace(setting, micro_batches=micro_batches, memory_limits=())
    return max(memory_of(tried, cut, stage).total_bytes for stage in range(setting.stages))


@pytest.mark.parametrize(
    ("schedule", "stages", "batch_size", "expected"),
    [
        ("gpipe", 1, 8, [1, 2, 4, 8]),
        ("gpipe", 3, 12, [3, 4, 6, 12]),
        ("1f1b", 2, 8, [2, 4, 8]),
        ("interleaved_1f1b", 2, 12, [2, 3, 4, 6, 12]),
        ("1f1b", 4, 6, [6]),
        ("gpipe", 5, 8, [8]),
        ("gpipe", 5, 3, []),
    ],
)
def test_the_numbers_auto_chooses_from(schedule: str, stages: int, batch_size: int, expected: list[int]) -> None:
    assert SCHEDULES[schedule].possible_micro_batches(stages, batch_size) == expected


@pytest.mark.few
@pytest.mark.parametrize("partition", ["auto", "uniform", [3, 1]])
@pytest.mark.parametrize("schedule", ["1f1b", "zero_bubble"])
def test_the_largest_micro_batch_that_fits(make_costs: Make, schedule: str, partition: str | list[int]) -> None:
    free = StepSetting(schedule, make_costs(), 2, 4, micro_batches=2)
    candidates = SCHEDULES[schedule].possible_micro_batches(2, 64)
    cuts = {"auto": tuple(every_cut(4, 2)), "uniform": ((2, 2),)}.get(str(partition), ((3, 1),))
    found = set()
    for limit in range(18_000, 120_000, 3_000):
        setting = replace(free, memory_limits=(limit, limit))
        fitting = [m for m in candidates if min(need(free, cut, m) for cut in cuts) <= limit]
        if fitting:
            assert fewest_micro_batches(setting, partition, candidates) == fitting[0]
            found.add(fitting[0])
        else:
            with pytest.raises(PlanError):
                fewest_micro_batches(setting, partition, candidates)
    assert len(found) > 2, "the limits tried told several numbers apart"


def test_where_nothing_fits(make_costs: Make) -> None:
    setting = StepSetting("gpipe", make_costs(), 1, 4, micro_batches=1, memory_limits=(5_000,))
    need_bytes = need(setting, (4,), 64)
    with pytest.raises(PlanError) as caught:
        fewest_micro_batches(setting, "auto", SCHEDULES["gpipe"].possible_micro_batches(1, 64))
    message = str(caught.value)
    assert message.startswith("pipeline.micro_batches: ") and "stage 0 of the cut [4]" in message
    assert f"{need_bytes:,} bytes and has 5,000" in message
