"""`make_plan` of backpropagation's pipelines, against figures computed by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from alray.core.errors import PlanError
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.plan import Plan
from alray.planning.prediction.predict import timeline_of

from ...plans import plan_on_two_stages

Make = Callable[..., Costs]
plan_of = partial(plan_on_two_stages, method="backpropagation", schedule="gpipe", micro_batches=4)


def test_gpipe_by_hand(make_costs: Make) -> None:
    # [2, 2]: F 20 and 30, B 40 and 30, U 10 and 15. Of a micro-batch: f 5 and 7.5, b 10 and 7.5.
    plan = plan_of(make_costs(), partition=[2, 2])
    step_ms = (5 + 7.5 + 3 * 7.5) + (10 + 7.5 + 3 * 10) + 10
    assert plan.predicted_step_time_s == pytest.approx(step_ms * 1e-3)
    assert plan.bound_s == pytest.approx(step_ms * 1e-3)
    assert plan.predicted_bubble == pytest.approx(1 - 145 / (2 * step_ms))
    assert "4 micro-batches" in plan.limited_by and "22 %" in plan.limited_by and "stage 1 " in plan.limited_by
    # Seconds of a stage are of a whole mini-batch.
    assert [own.forward_s for own in plan.stage_plans] == pytest.approx([0.020, 0.030])
    assert [own.backward_s for own in plan.stage_plans] == pytest.approx([0.040, 0.030])


def test_each_computation_has_its_overhead(make_costs: Make) -> None:
    without = plan_of(make_costs(), partition=[2, 2]).predicted_step_time_s
    # On the longest way: 5 forwards and 5 backwards of 1 ms more.
    overhead = plan_of(make_costs(action_overhead_s=1e-3), partition=[2, 2])
    assert overhead.predicted_step_time_s == pytest.approx(without + 10e-3)
    assert [own.forward_s for own in overhead.stage_plans] == pytest.approx([0.024, 0.034])
    assert [own.backward_s for own in overhead.stage_plans] == pytest.approx([0.044, 0.034])
    for alone in ({"schedule": "single", "micro_batches": 1}, {"schedule": "gpipe"}):
        plan = plan_of(make_costs(action_overhead_s=1e-3), stages=1, **alone)
        assert plan.predicted_step_time_s == pytest.approx(0.145)


def test_naive(make_costs: Make) -> None:
    plan = plan_of(make_costs(), schedule="naive", micro_batches=1, partition=[2, 2])
    assert plan.predicted_step_time_s == pytest.approx(0.120 + 0.010)
    assert "the stages idle for 44 % of the step" in plan.limited_by


def test_a_split_backward_follows_its_share(make_costs: Make) -> None:
    costs = replace(make_costs(), input_gradient_share=0.25)
    one = plan_of(costs, schedule="zero_bubble", stages=1)
    assert one.predicted_step_time_s == pytest.approx(0.145)  # all of it, whatever the share
    # The gradient of the input, which stage 0 waits for, is done sooner.
    step = plan_of(costs, schedule="zero_bubble", partition=[2, 2]).predicted_step_time_s
    assert step < plan_of(make_costs(), schedule="zero_bubble", partition=[2, 2]).predicted_step_time_s


def test_edges_go_both_ways(make_costs: Make) -> None:
    plan = plan_of(make_costs(output_bytes=1000), partition=[1, 1, 2], stages=3)
    assert [(edge.edge, edge.bytes_per_step) for edge in plan.edges] == [
        ("0->1", 1000),
        ("1->0", 1000),
        ("1->2", 2000),
        ("2->1", 2000),
    ]


def test_messages_of_micro_batches(make_costs: Make) -> None:
    costs = make_costs(output_bytes=1_000_000, edge_s_per_byte=2e-9, edge_latency_s=1e-3)
    free = plan_of(make_costs(), schedule="naive", micro_batches=1, partition=[2, 2]).predicted_step_time_s
    # 2 MB take 4 ms and 1 ms of latency, once up and once down.
    step = plan_of(costs, schedule="naive", micro_batches=1, partition=[2, 2]).predicted_step_time_s
    assert step == pytest.approx(free + 0.010)


def test_virtual_stages(make_costs: Make) -> None:
    plan = plan_of(make_costs(output_bytes=1000), schedule="interleaved_1f1b", virtual_stages=2)
    assert plan.partition == (1, 1, 1, 1)
    assert [own.chunks for own in plan.stage_plans] == [((0, 0), (2, 2)), ((1, 1), (3, 3))]
    assert [own.components for own in plan.stage_plans] == [(0, 2), (1, 3)]
    assert [(own.first, own.last) for own in plan.stage_plans] == [(0, 0), (1, 1)]
    assert plan.stage_plans[1].update_s == pytest.approx(0.005 + 0.010)
    # Up 0 -> 1 and 2 -> 3, and the gradient of 1's output from 2 to 1, are all from stage 0 to stage 1.
    assert {edge.edge: edge.bytes_per_step for edge in plan.edges} == {
        "0->1": 1000 + 3000 + 2000,
        "1->0": 2000 + 1000 + 3000,
    }
    assert Plan.from_json(json.loads(json.dumps(plan.as_json()))) == plan


def test_evaluation_with_virtual_stages_goes_one_by_one(make_costs: Make) -> None:
    # 4 x 2 ms up, with the first D of each route, (3 + 2 + 1) x 1 ms down.
    plan = plan_of(make_costs(), schedule="interleaved_1f1b", virtual_stages=2, evaluation_batches=3)
    assert plan.evaluation_s == pytest.approx(3 * 14e-3)


def test_memory_of_held_micro_batches(make_costs: Make) -> None:
    costs = make_costs(output_bytes=1000)

    def memory(schedule: str, **changes: Any) -> list[tuple[int, int]]:
        plan = plan_of(costs, schedule=schedule, partition=[2, 2], **changes)
        return [(own.memory.activations_bytes, own.memory.channel_bytes) for own in plan.stage_plans]

    # Activations 30,000 and 70,000 of a mini-batch; the message between holds 2,000. A stage has a slot for each
    # micro-batch that comes before the first backward, and one gradient on its way down. What it sent is among its
    # activations.
    assert memory("gpipe") == [(30_000, 0), (70_000, 2_500)]
    assert memory("1f1b") == [(15_000, 0), (17_500, 1_500)]
    assert memory("naive", micro_batches=1) == [(30_000, 0), (70_000, 4_000)]
    # On one stage each micro-batch goes forward and back before the next one.
    (alone,) = plan_of(costs, schedule="gpipe", stages=1).stage_plans
    assert (alone.memory.activations_bytes, alone.memory.channel_bytes) == (25_000, 0)
    virtual = plan_of(costs, schedule="interleaved_1f1b", virtual_stages=2, micro_batches=2).stage_plans[0]
    # Both micro-batches of components 0 and 2 at once: 10,000 + 30,000.
    assert virtual.memory.activations_bytes == 40_000


def test_the_timeline_is_the_plans(make_costs: Make) -> None:
    plan = plan_of(make_costs(), schedule="zero_bubble", micro_batches=8, stage_speed=[1.0, 2.0])
    timeline = timeline_of(plan, plan.partition)
    assert timeline.step_time_s == plan.predicted_step_time_s
    assert plan.stage_speed == (1.0, 2.0)


def test_speeds_and_limits_reach_the_plan(make_costs: Make) -> None:
    slow = plan_of(make_costs(), schedule="streamed", micro_batches=1, partition=[2, 2], stage_speed=[1.0, 0.5])
    assert slow.predicted_step_time_s == pytest.approx(0.150)
    assert slow.limited_by.startswith("stage 1 is 36 % slower than the mean, ")
    assert slow.limited_by.endswith("; best cut [3, 1] gives 1.50x")
    with pytest.raises(PlanError, match="stage 1 needs"):
        plan_of(make_costs(), memory_limits=[10**9, 10])


def test_a_partition_has_an_entry_for_each_virtual_stage(make_costs: Make) -> None:
    with pytest.raises(PlanError, match=r"\[2, 2\] is for 2 stages, but `stages` is 4"):
        plan_of(make_costs(), schedule="interleaved_1f1b", virtual_stages=2, partition=[2, 2])


def test_averages_of_replicas_are_in_the_timeline(make_costs: Make) -> None:
    costs = make_costs()
    costs = replace(costs, components=tuple(replace(each, reduce_s=0.02) for each in costs.components))
    plan = plan_of(costs, replicas=2, partition=[2, 2])
    assert timeline_of(plan, plan.partition).step_time_s == pytest.approx(plan.predicted_step_time_s)
    assert plan.predicted_step_time_s > plan_of(costs, partition=[2, 2]).predicted_step_time_s + 0.03


def test_a_cut_that_is_asked_for_may_pass_the_limits(make_costs: Make) -> None:
    free = plan_of(make_costs(), partition=[3, 1])
    limits = [free.stage_plans[0].memory.total_bytes - 1, 10**9]
    assert plan_of(make_costs(), partition=[3, 1], memory_limits=limits).partition == (3, 1)
    assert plan_of(make_costs(), memory_limits=limits).partition != (3, 1)
