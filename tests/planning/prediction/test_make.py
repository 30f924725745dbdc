"""`make_plan`: partition, prediction, limits, memory and deadline, against figures computed by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from alray.core.errors import PlanError
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.memory import memory_of, stage_ranges
from alray.planning.prediction.plan import Memory, Plan
from alray.planning.prediction.seconds import RunSeconds
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.schedule import Schedule
from alray.planning.schedules.table import SCHEDULES

from ...plans import plan_on_two_stages as plan_of

Make = Callable[..., Costs]


def test_streamed_takes_the_cut_with_the_fastest_slowest_stage(make_costs: Make) -> None:
    plan = plan_of(make_costs())
    assert plan.partition == (2, 2)
    assert plan.predicted_step_time_s == pytest.approx(0.075)  # 25 + 50 against 35 + 35
    assert plan.bound_s == pytest.approx(0.075)
    assert plan.predicted_bubble == pytest.approx(1 - 145 / 150)
    assert plan.limited_by == (
        "stage 1 is 3 % slower than the mean, and the stages idle for 3.3 % of the step; no other cut is better"
    )
    assert [(own.first, own.last) for own in plan.stage_plans] == [(0, 1), (2, 3)]


def test_a_worse_cut_is_told_with_the_better_one(make_costs: Make) -> None:
    plan = plan_of(make_costs(), partition=[1, 3])
    # 110 against a mean of 72.5 is 52 % more; 110 / 75 is 1.47.
    assert plan.limited_by.startswith("stage 1 is 52 % slower than the mean, ")
    assert plan.limited_by.endswith("; best cut [2, 2] gives 1.47x")


@pytest.mark.parametrize(
    ("schedule", "step_ms", "partition"),
    [
        # [2, 2]: F 20 and 30, B + U 50 and 45.
        ("parallel_backward", 50 + 50, (2, 2)),
        # Stage 0 is done at 20 + 50, stage 1 at 50 + 45. [1, 3]: 10 + 50 + 70 = 120; [3, 1]: 50 + 30 and 30 + 70.
        ("overlapped", 95, (2, 2)),
        ("sequential", 145, (2, 2)),
    ],
)
def test_barrier_schedules(make_costs: Make, schedule: str, step_ms: float, partition: tuple[int, ...]) -> None:
    plan = plan_of(make_costs(), schedule=schedule)
    assert plan.partition == partition
    assert plan.predicted_step_time_s == pytest.approx(step_ms * 1e-3)
    assert plan.bound_s == pytest.approx(step_ms * 1e-3)
    assert "the stages idle for " in plan.limited_by and plan.limited_by.endswith("; no other cut is better")


def test_overlapped_cuts_for_its_own_bound(make_costs: Make) -> None:
    # Three stages. max(F_0 + .. + F_s + B_s): [1, 2, 1]: 35, 70, 80; [2, 1, 1]: 70, 45, 80; [1, 1, 2]: 35, 45, 95.
    # Squares of the first: 1225 + 4900 + 6400; of the second: 4900 + 2025 + 6400.
    assert plan_of(make_costs(), schedule="overlapped", stages=3).partition == (1, 2, 1)


def test_single(make_costs: Make) -> None:
    plan = plan_of(make_costs(), schedule="single", stages=1, method="backpropagation")
    assert plan.predicted_step_time_s == pytest.approx(0.145)
    assert plan.predicted_bubble == pytest.approx(0.0)
    assert plan.edges == ()
    assert plan.limited_by == "one stage does all the work"


def test_averages_over_replicas_are_named(make_costs: Make) -> None:
    given = make_costs()
    costs = replace(given, components=tuple(replace(each, reduce_s=0.0) for each in given.components[:3]))
    costs = replace(costs, components=(*costs.components, replace(given.components[3], reduce_s=0.05)))
    said = plan_of(costs, replicas=2, partition=[2, 2]).limited_by
    assert "; averages over the replicas take 40 % of a step; " in said  # 50 of 25 + 50 + 50 ms
    alone = plan_of(costs, replicas=2, schedule="single", stages=1, method="backpropagation")
    assert alone.limited_by == "one stage does all the work; averages over the replicas take 26 % of a step"
    assert "averages" not in plan_of(costs, partition=[2, 2]).limited_by


def test_shares_of_more_than_all_are_whole_numbers(make_costs: Make) -> None:
    """They were `1.3e+02 %`."""
    costs = make_costs(output_bytes=1_000_000, edge_s_per_byte=5e-8)
    plan = plan_of(costs, schedule="overlapped", partition="cyclic", virtual_stages=2)
    assert "e+" not in plan.limited_by


def test_messages_take_time_of_both_stages(make_costs: Make) -> None:
    costs = make_costs(output_bytes=1_000_000, edge_s_per_byte=2e-9, edge_latency_s=1e-3)
    plan = plan_of(costs, partition=[2, 2])
    assert [(edge.edge, edge.bytes_per_step) for edge in plan.edges] == [("0->1", 2_000_000)]
    # 2 MB take 4 ms: 2 on the sender, 2 on the slower receiver; the latency is nobody's in steady state.
    assert plan.predicted_step_time_s == pytest.approx(0.077)
    assert plan.bound_s == pytest.approx(0.075)


def test_dear_messages_move_the_cut(make_costs: Make) -> None:
    # Messages behind components 0, 1, 2 take 20, 40, 60 ms: [1, 3] is 35 + 10 and 110 + 10, [2, 2] is 90 and 95,
    # [3, 1] is 95 + 30 and 50 + 30.
    assert plan_of(make_costs(output_bytes=10, edge_s_per_byte=2e-3)).partition == (2, 2)
    # Ten times that: [1, 3] is 135 and 210, [2, 2] is 270 and 275.
    assert plan_of(make_costs(output_bytes=100, edge_s_per_byte=2e-3)).partition == (1, 3)


def test_shared_processors_set_the_pace(make_costs: Make) -> None:
    plan = plan_of(make_costs(), stages=4, cores=2)
    # Four stages on two processors: 145 ms of work a step, 72.5 ms on two, though the slowest stage needs only 50.
    assert plan.predicted_step_time_s == pytest.approx(0.0725)
    assert plan.bound_s == pytest.approx(0.0725)
    assert plan.limited_by == "processors are shared: 4 threads of 4 stages on 2 processors"
    assert plan_of(make_costs(), stages=4, cores=4).predicted_step_time_s == pytest.approx(0.050)
    assert plan_of(make_costs(threads=2), stages=4, cores=4).predicted_step_time_s == pytest.approx(0.0725)


def test_uniform_and_parameters(make_costs: Make) -> None:
    assert plan_of(make_costs(), stages=3, partition="uniform").partition == (2, 1, 1)
    assert plan_of(make_costs(), partition="parameters").partition == (3, 1)  # 600 and 1000


def test_evaluation(make_costs: Make) -> None:
    # One stage, four components: 4 x 2 ms up, with a route's first D; (3 + 2 + 1) x 1 ms down; three mini-batches.
    plan = plan_of(make_costs(), stages=1, evaluation_batches=3)
    assert plan.evaluation_s == pytest.approx(3 * 14e-3)
    # Two stages of two: up 4 ms each; down 5 ms on stage 0, 1 ms on stage 1. One mini-batch goes through all of it.
    assert plan_of(make_costs(), evaluation_batches=1).evaluation_s == pytest.approx(14e-3)
    # One replica evaluates, however many there are.
    shared = [plan_of(make_costs(), evaluation_batches=9, cores=2, replicas=count).evaluation_s for count in (1, 4)]
    assert shared[0] == shared[1]
    assert plan_of(make_costs()).evaluation_s == 0.0


def test_one_replica_evaluates_whole_mini_batches(make_costs: Make) -> None:
    """The costs are of its share alone, of which one that waits for it may wait longer than for training."""
    costs = make_costs()
    costs = replace(costs, components=tuple(replace(each, infer_s=20.0) for each in costs.components))
    samples = costs.batch_size
    share, whole = (
        plan_of(costs, evaluation_batches=3, replicas=len(shares), shares=shares)
        for shares in ((samples,), (samples, samples))
    )
    assert whole.evaluation_s == pytest.approx(2 * share.evaluation_s)
    assert whole.deadline_s == pytest.approx(2 * share.deadline_s)


def test_other_replicas_wait_while_the_first_one_reads_what_it_evaluates(make_costs: Make) -> None:
    plan = plan_of(replace(make_costs(), data_s=30.0), evaluation_batches=10, replicas=2)
    assert plan.evaluation_s > 300.0 and plan.longest_wait_s > 3000.0


def test_without_a_label_chain_one_route_comes_down(make_costs: Make) -> None:
    # 4 x 2 ms up and once 3 x 1 ms down; of two stages, a message of 4000 bytes down, not one for each depth.
    costs = make_costs(output_bytes=4000, edge_s_per_byte=1e-6)
    *lower, last = costs.components
    costs = replace(costs, components=(*(replace(entry, ends_route=False) for entry in lower), last))
    assert plan_of(costs, stages=1, evaluation_batches=1).evaluation_s == pytest.approx(11e-3)
    durations = RunSeconds(StepSetting(schedule="streamed", costs=costs, stages=2, in_flight=1)).of_evaluation([2, 2])
    assert list(durations.down_s) == pytest.approx([4e-3])
    assert list(durations.computing["D"]) == pytest.approx([2e-3, 1e-3])


def test_deadline(make_costs: Make) -> None:
    assert plan_of(make_costs()).deadline_s == 15.0
    # The first mini-batch is through at 20 + 75 = 95 ms; a hundred times that, twenty times over.
    assert plan_of(make_costs(scale=100.0)).deadline_s == pytest.approx(20 * 9.5)


def test_memory_of_a_stage(make_costs: Make) -> None:
    costs = make_costs(output_bytes=1000)
    assert stage_ranges([1, 2, 1]) == [range(0, 1), range(1, 3), range(3, 4)]
    setting = StepSetting("streamed", costs, 3, in_flight=4)
    assert memory_of(setting, [1, 2, 1], 1) == Memory(
        parameters_bytes=4 * 500,
        gradients_bytes=4 * 500,
        optimizer_bytes=8 * 500,
        activations_bytes=20_000 + 30_000,
        channel_bytes=5 * 1000 + 5 * 3000,  # five messages of component 0 coming, five of component 2 going
        snapshot_bytes=12 * 500,
    )
    assert memory_of(StepSetting("streamed", costs, 1, in_flight=4), [4], 0).channel_bytes == 0


def test_copies_from_the_last_stage_have_two_buffers_on_each_edge(make_costs: Make) -> None:
    plain, copying = (
        [
            memory_of(StepSetting("streamed", replace(make_costs(), copy_bytes=size), 3, 4), [1, 1, 2], stage)
            for stage in range(3)
        ]
        for size in (0, 700)
    )
    more = [each.channel_bytes - before.channel_bytes for before, each in zip(plain, copying, strict=True)]
    assert more == [2 * 700, 2 * 700, 2 * 2 * 700]


def test_a_plan_comes_back_from_its_json(make_costs: Make) -> None:
    plan = plan_of(make_costs(output_bytes=1000), evaluation_batches=2, cores=2)
    assert Plan.from_json(json.loads(json.dumps(plan.as_json()))) == plan


def test_more_stages_than_components(make_costs: Make) -> None:
    with pytest.raises(PlanError, match="5 stages, but the model has only 4 components"):
        plan_of(make_costs(), stages=5)


@pytest.mark.parametrize("schedule", SCHEDULES.values())
def test_what_limits_a_schedule_is_one_sentence(schedule: Schedule, make_costs: Make) -> None:
    stages = 1 if schedule.one_stage else 2
    plan = plan_of(
        make_costs(),
        schedule=schedule.name,
        stages=stages,
        micro_batches=schedule.default_micro_batches(stages),
        virtual_stages=schedule.default_virtual_stages,
    )
    assert plan.limited_by
    assert plan.predicted_step_time_s >= plan.bound_s - 1e-9


def test_the_actions_of_a_plan(make_costs: Make) -> None:
    def listed(stage: int, **changes: Any) -> str:
        return " ".join(map(str, plan_of(make_costs(), **changes).actions(stage)))

    assert listed(1) == "1R0 1F0 1R0.1 1L0 1B0 1U0"
    alone = {"stages": 1, "virtual_stages": 2}
    assert listed(0, **alone) == "0F0 0S0 0L0 0S0.1 0B0 0U0 1R0 1F0 1R0.1 1L0 1B0 1U0"


def test_label_costs_are_a_part_of_the_backward_and_of_the_message(make_costs: Make) -> None:
    whole = make_costs(output_bytes=1000, edge_s_per_byte=1e-5)
    costs = replace(whole, components=tuple(replace(own, label_s=8e-3, label_bytes=400) for own in whole.components))
    durations = RunSeconds(StepSetting("streamed", costs, 2, 4)).of_cuts((2, 2))
    assert durations.computing["L"] == pytest.approx([16e-3, 16e-3])
    assert durations.computing["B"] == pytest.approx([40e-3 - 16e-3, 30e-3 - 16e-3])
    assert [*durations.up_s, *durations.labels_up_s] == pytest.approx([16e-3, 4e-3])
    # Both parts of a mini-batch take as long as before.
    assert plan_of(costs).stage_plans == plan_of(whole).stage_plans
    assert plan_of(costs).edges == plan_of(whole).edges
    assert plan_of(costs).predicted_step_time_s == pytest.approx(plan_of(whole).predicted_step_time_s)
    # parallel_backward: stage 1 has its losses at F_0 + F_1 + L_1, then
    # stage 0 has the slower rest of B, with U.
    free = replace(costs, edge_s_per_byte=0.0)
    plan = plan_of(free, schedule="parallel_backward", partition=[2, 2])
    assert plan.bound_s == pytest.approx(20e-3 + 30e-3 + 16e-3 + (50e-3 - 16e-3))
    assert plan.predicted_step_time_s == pytest.approx(plan.bound_s)


def test_stages_that_take_turns_have_no_bubble(make_costs: Make) -> None:
    """A step is the work of all stages, whatever the schedule, the cut and the replicas."""
    for changes in ({}, {"schedule": "sequential"}, {"partition": [1, 3]}, {"partition": [1, 1, 1, 1], "stages": 4}):
        plan = plan_of(make_costs(), in_turns=True, cores=1, **changes)
        assert plan.predicted_step_time_s == plan.bound_s == pytest.approx(0.145)
        assert plan.predicted_bubble is None
        assert "take turns" in plan.limited_by
        assert Plan.from_json(json.loads(json.dumps(plan.as_json()))) == plan
    twice = plan_of(make_costs(), in_turns=True, cores=1, replicas=2, shares=(4, 4))
    assert twice.predicted_step_time_s == twice.bound_s == pytest.approx(2 * 0.145)


def test_reading_data_is_no_forward(make_costs: Make) -> None:
    plan = plan_of(replace(make_costs(), data_s=0.004))
    first, second = plan.stage_plans
    alone, _ = plan_of(make_costs(), partition=plan.partition).stage_plans
    assert (first.data_s, second.data_s) == (0.004, 0.0)
    assert first.forward_s == pytest.approx(alone.forward_s)


def test_averages_are_no_update(make_costs: Make) -> None:
    costs = make_costs()
    costs = replace(costs, components=tuple(replace(each, reduce_s=0.002) for each in costs.components))
    for changes in ({}, {"schedule": "1f1b", "method": "backpropagation", "micro_batches": 4}):
        alone, _ = plan_of(costs, partition=[2, 2], **changes).stage_plans
        shared, _ = plan_of(costs, partition=[2, 2], replicas=2, shares=(4, 4), **changes).stage_plans
        assert (alone.averages_s, shared.averages_s) == (0.0, pytest.approx(0.004))
        assert shared.update_s == pytest.approx(alone.update_s) and shared.forward_s == alone.forward_s


def test_cyclic_placement(make_costs: Make) -> None:
    """Components in turns on two stages: stage 1 begins after F of one component, and has 35 + 50 ms to do."""
    plan = plan_of(make_costs(), schedule="overlapped", partition="cyclic", virtual_stages=2)
    assert (plan.partition, plan.virtual_stages) == ((1, 1, 1, 1), 2)
    assert [list(map(list, stage.runs)) for stage in plan.stage_plans] == [[[0], [2]], [[1], [3]]]
    assert [edge.edge for edge in plan.edges] == ["0->1", "1->0"]
    assert plan.edges[0].bytes_per_step == sum(plan.costs.components[index].output_bytes for index in (0, 2))
    assert plan.edges[1].bytes_per_step == plan.costs.components[1].output_bytes
    blocked = plan_of(make_costs(), schedule="overlapped", partition="uniform")
    assert plan.predicted_step_time_s == pytest.approx(plan.bound_s) == pytest.approx(0.010 + 0.035 + 0.050)
    assert blocked.predicted_step_time_s == pytest.approx(0.020 + 0.025 + 0.050)  # here both cuts are as good
    assert Plan.from_json(plan.as_json()) == plan


@pytest.mark.parametrize(
    ("schedule", "stages", "virtual_stages", "expected"),
    [
        ("interleaved_1f1b", 4, 2, True),
        ("interleaved_1f1b", 1, 2, False),  # a stage alone sends to none
        ("1f1b", 2, 1, False),
        ("zb_v", 4, 2, False),  # its turn lies on the last stage
    ],
)
def test_a_ring_sends_from_the_last_stage_to_the_first(
    make_costs: Make, schedule: str, stages: int, virtual_stages: int, expected: bool
) -> None:
    costs = replace(make_costs(), components=make_costs().components * 2)
    setting = StepSetting(schedule, costs, stages, 4, 4, virtual_stages)
    assert setting.is_ring == expected


def test_buffers_of_a_ring(make_costs: Make) -> None:
    """An edge has buffers for all messages of `in_flight` mini-batches, and one to work on, each for the largest."""
    plan = plan_of(make_costs(), partition="cyclic", virtual_stages=2, in_flight=3)
    first, second, third, _ = (component.output_bytes for component in plan.costs.components)
    up, back = (2 * 3 + 1) * max(first, third), (3 + 1) * second
    assert [stage.memory.channel_bytes for stage in plan.stage_plans] == [up + back, up + back]
