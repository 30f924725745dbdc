"""The best cut, the cut that the search finds and the bound that a plan prints, for random chains whose cuts can all be
predicted.

    python -m benchmarks.brute_force

Chains have 7 to 10 components with random times and outputs, messages that take from nothing to as long as a
computation, and, one in two, memory limits that some cuts do not keep. Each schedule has its turn. The best cut is
found by predicting every cut by itself, which is not how the search does it. The search runs twice: as for a plan,
which simulates all of so few cuts, and as for many cuts, with the bound and moves of boundaries alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from alray.planning.prediction.best import best_cut
from alray.planning.prediction.costs import ComponentCosts, Costs, Link
from alray.planning.prediction.memory import memory_of
from alray.planning.prediction.partition import partition_auto
from alray.planning.prediction.predict import predict_step
from alray.planning.prediction.search import every_cut, fits, search_cut
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.table import SCHEDULES
from benchmarks.runs import write_results

CHAINS = 500
WITHIN = 0.02
"""That the bound should be from what was found, in 95 % of the chains."""
_SAMPLES = 64


@dataclass(frozen=True)
class Chain:
    """What was found for a chain.

    Attributes:
        cuts: how many keep within the memory limits.
        best_s: the step of the best of them.
        found_s, least_s: of the search as for a plan, and the bound.
        moved_s, moved_least_s: of the search as for many cuts.
    """

    schedule: str
    stages: int
    cuts: int
    has_limits: bool
    best_s: float
    found_s: float
    least_s: float
    moved_s: float
    moved_least_s: float

    @property
    def is_right(self) -> bool:
        """Whether no cut is below either bound, and none is found that is better than the best."""
        least_s = max(self.least_s, self.moved_least_s)
        return least_s <= self.best_s * (1 + 1e-9) and self.best_s <= min(self.found_s, self.moved_s) * (1 + 1e-9)


def main() -> None:
    chains = [chain(number) for number in range(CHAINS)]
    summary = summary_of(chains)
    for name, value in summary.items():
        print(f"{name}: {value}")  # noqa: T201
    write_results("brute_force", summary)


def summary_of(chains: Sequence[Chain]) -> dict[str, float]:
    """The figures of the page: shares of the chains, and relative distances."""
    far = np.array([each.found_s / each.best_s - 1 for each in chains])
    printed = np.array([each.found_s / each.least_s - 1 for each in chains])
    moved = np.array([each.moved_s / each.best_s - 1 for each in chains])
    moved_printed = np.array([each.moved_s / each.moved_least_s - 1 for each in chains])
    return {
        "chains": len(chains),
        "with_limits": sum(each.has_limits for each in chains),
        "cuts": sum(each.cuts for each in chains),
        "right": float(np.mean([each.is_right for each in chains])),
        "best": float(np.mean(far <= 1e-9)),
        "bound_near": float(np.mean(printed <= WITHIN)),
        "moved_best": float(np.mean(moved <= 1e-9)),
        "moved_far": float(np.quantile(moved, 0.95)),
        "moved_bound_near": float(np.mean(moved_printed <= WITHIN)),
        "moved_bound_median": float(np.median(moved_printed)),
        "moved_bound_95": float(np.quantile(moved_printed, 0.95)),
    }


def chain(number: int, most: int = 10) -> Chain:
    """Chain `number` of the benchmark, with so many components at most."""
    setting = _setting(number, most)
    cuts = [cut for cut in every_cut(len(setting.costs.components), setting.num_parts) if fits(setting, cut)]
    best_s = min(predict_step(setting, cut).step_time_s for cut in cuts)
    found = best_cut(setting)
    start = partition_auto([component.train_s for component in setting.costs.components], setting.num_parts)
    moved = search_cut(setting, start if fits(setting, start) else cuts[0], complete=False)
    return Chain(
        setting.schedule,
        setting.stages,
        len(cuts),
        bool(setting.memory_limits),
        best_s,
        found.step_s,
        found.least_s,
        moved.step_s,
        moved.least_s,
    )


def _setting(number: int, most: int) -> StepSetting:
    drawn = random.Random(number)
    names = [each.name for each in SCHEDULES.values() if each.only_layout is None and not each.one_stage]
    schedule = SCHEDULES[names[number % len(names)]]
    virtual_stages = schedule.default_virtual_stages
    stages = drawn.choice((2, 3)) if virtual_stages > 1 else drawn.choice((2, 3, 4))
    micro_batches = schedule.default_micro_batches(stages, _SAMPLES) if schedule.cuts_mini_batches else 1
    costs = Costs(
        "given",
        "cpu",
        1,
        _SAMPLES,
        tuple(_component(drawn, str(index)) for index in range(drawn.randint(7, most))),
        data_s=drawn.choice((0.0, 0.02)),
        edge_latency_s=drawn.choice((0.0, 2e-4, 5e-3)),
        edge_s_per_byte=drawn.choice((0.0, 1e-6, 1e-5, 1e-4)),
    )
    link = Link(drawn.choice((1e-3, 1e-2)), drawn.choice((1e-6, 1e-5)), 1e-5, buffer_bytes=1000)
    setting = StepSetting(
        schedule.name,
        costs,
        stages,
        drawn.choice((1, 4)),
        micro_batches,
        virtual_stages,
        stage_speed=drawn.choice(((), (1.0, 0.5, 2.0, 1.0)[:stages])),
        replicas=drawn.choice((1, 2)),
        links=drawn.choice(((), (link,) * stages)),
    )
    if drawn.random() < 0.5:
        return setting
    # A limit for all stages that one of the cuts keeps.
    cut = drawn.choice(list(every_cut(len(costs.components), setting.num_parts)))
    limit = max(memory_of(setting, cut, stage).total_bytes for stage in range(stages))
    return replace(setting, memory_limits=(limit,) * stages)


def _component(drawn: random.Random, name: str) -> ComponentCosts:
    return ComponentCosts(
        name=name,
        forward_s=drawn.uniform(0.001, 0.02),
        backward_s=drawn.uniform(0.001, 0.04),
        update_s=drawn.uniform(0.0, 0.005),
        infer_s=0.0,
        route_s=0.0,
        parameters=100,
        parameter_bytes=drawn.randint(0, 1000),
        gradient_bytes=drawn.randint(0, 1000),
        optimizer_bytes=drawn.randint(0, 2000),
        activation_bytes=drawn.randint(1, 3000),
        output_bytes=drawn.randint(1, 1000),
        infer_bytes=0,
        route_bytes=0,
        output_shape=(1,),
        reduce_s=drawn.uniform(0.0, 0.005),
    )


if __name__ == "__main__":
    main()
