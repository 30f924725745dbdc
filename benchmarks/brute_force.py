"""The best cut, the cut that the search finds, and the bound of each cut, for random chains whose cuts can all be
predicted.

    python -m benchmarks.brute_force

Chains have 7 to 10 components with random times and outputs, some with a label chain, and with times that micro-batches
take more or less than their share of. Messages take from nothing to as long as a computation, devices differ in speed,
forwards may be computed again, and one in two has memory limits that some cuts do not keep. Each schedule has its turn,
with one or several virtual stages. The best cut is found by predicting every cut by itself, which is not how the search
does it. The search runs twice: as for a plan, which simulates all of so few cuts, and as for many cuts, by moves of
boundaries alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np

from alray.planning.prediction.best import best_cut
from alray.planning.prediction.costs import ComponentCosts, Costs, Link
from alray.planning.prediction.memory import memory_of
from alray.planning.prediction.partition import partition_auto
from alray.planning.prediction.predict import bound_of, predict_step
from alray.planning.prediction.search import every_cut, fits, search_cut
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.table import SCHEDULES
from benchmarks.runs import write_results

CHAINS = 1000
_SAMPLES = 64


@dataclass(frozen=True)
class Chain:
    """What was found for a chain.

    Attributes:
        cuts: how many keep within the memory limits.
        best_s: the step of the best of them.
        over_bound: the step of a cut over its bound, the least of all cuts.
        found_s, is_best: of the search as for a plan, and whether it says that no cut is better.
        moved_s: of the search as for many cuts.
    """

    schedule: str
    stages: int
    cuts: int
    has_limits: bool
    best_s: float
    over_bound: float
    found_s: float
    is_best: bool
    moved_s: float

    @property
    def is_right(self) -> bool:
        """Whether no cut is below its bound, what is called the best is it, and none is found that is better."""
        best_is_best = not self.is_best or self.found_s <= self.best_s * (1 + 1e-9)
        none_better = self.best_s <= min(self.found_s, self.moved_s) * (1 + 1e-9)
        return self.over_bound >= 1 - 1e-9 and best_is_best and none_better


def main() -> None:
    chains = [chain(number) for number in range(CHAINS)]
    summary = summary_of(chains)
    for name, value in summary.items():
        print(f"{name}: {value}")  # noqa: T201
    write_results("brute_force", summary)


def summary_of(chains: Sequence[Chain]) -> dict[str, float]:
    """The figures of the page: shares of the chains, and relative distances."""
    far = np.array([each.found_s / each.best_s - 1 for each in chains])
    moved = np.array([each.moved_s / each.best_s - 1 for each in chains])
    return {
        "chains": len(chains),
        "with_limits": sum(each.has_limits for each in chains),
        "cuts": sum(each.cuts for each in chains),
        "right": float(np.mean([each.is_right for each in chains])),
        "best": float(np.mean(far <= 1e-9)),
        "called_best": float(np.mean([each.is_best for each in chains])),
        "moved_best": float(np.mean(moved <= 1e-9)),
        "moved_far": float(np.quantile(moved, 0.95)),
    }


def chain(number: int, most: int = 10) -> Chain:
    """Chain `number` of the benchmark, with so many components at most."""
    setting = _setting(number, most)
    cuts = [cut for cut in every_cut(len(setting.costs.components), setting.num_parts) if fits(setting, cut)]
    steps = [predict_step(setting, cut).step_time_s for cut in cuts]
    found = best_cut(setting)
    start = partition_auto([component.train_s for component in setting.costs.components], setting.num_parts)
    with patch("alray.planning.prediction.search.MOST_ACTIONS", 0):
        moved = search_cut(setting, [start if fits(setting, start) else cuts[0]])
    return Chain(
        setting.schedule,
        setting.stages,
        len(cuts),
        bool(setting.memory_limits),
        min(steps),
        min(step_s / bound_of(setting, cut) for step_s, cut in zip(steps, cuts, strict=True)),
        found.step_s,
        found.is_best,
        moved.step_s,
    )


def _setting(number: int, most: int) -> StepSetting:
    drawn = random.Random(number)
    names = [each.name for each in SCHEDULES.values() if each.only_layout is None and not each.one_stage]
    schedule = SCHEDULES[names[number % len(names)]]
    virtual_stages = schedule.default_virtual_stages
    if schedule.fewest_virtual_stages is not None and schedule.most_virtual_stages > 2:
        virtual_stages = drawn.choice((virtual_stages, 2))
    stages = drawn.choice((2, 3)) if virtual_stages > 1 else drawn.choice((2, 3, 4))
    micro_batches = 1
    if schedule.cuts_mini_batches:
        micro_batches = drawn.choice(schedule.possible_micro_batches(stages, _SAMPLES)[:3])
    costs = Costs(
        "given",
        "cpu",
        1,
        _SAMPLES,
        tuple(_component(drawn, str(index)) for index in range(drawn.randint(7, most))),
        data_s=drawn.choice((0.0, 0.02)),
        action_overhead_s=drawn.choice((0.0, 1e-4, 2e-3)),
        split_backward=drawn.choice((1.0, 0.9, 1.4)),
        input_gradient_share=drawn.choice((0.5, 0.3)),
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
        recomputes=drawn.choice((False, schedule.is_pipeline)),
        clips_together=drawn.choice((False, False, schedule.is_pipeline)),
        links=drawn.choice(((), (link,) * stages, (link, *[None] * (stages - 1)))),
    )
    if drawn.random() < 0.5:
        return setting
    # A limit for all stages that one of the cuts keeps.
    cut = drawn.choice(list(every_cut(len(costs.components), setting.num_parts)))
    limit = max(memory_of(setting, cut, stage).total_bytes for stage in range(stages))
    return replace(setting, memory_limits=(limit,) * stages)


def _component(drawn: random.Random, name: str) -> ComponentCosts:
    forward_s, backward_s = drawn.uniform(0.001, 0.02), drawn.uniform(0.001, 0.04)
    return ComponentCosts(
        name=name,
        forward_s=forward_s,
        backward_s=backward_s,
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
        forward_fixed_s=forward_s * drawn.uniform(-0.5, 0.5),
        backward_fixed_s=backward_s * drawn.uniform(-0.5, 0.5),
        reduce_s=drawn.uniform(0.0, 0.005),
        label_s=backward_s * drawn.choice((0.0, 0.3)),
        label_bytes=drawn.choice((0, 1)),
    )


if __name__ == "__main__":
    main()
