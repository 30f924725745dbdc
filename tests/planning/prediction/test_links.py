"""Messages between nodes: they take the link, which holds the sender back, and move the best cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from alray.planning.prediction.best import best_cut
from alray.planning.prediction.costs import Link
from alray.planning.prediction.machines import DEVICES, link_of, machines_of
from alray.planning.prediction.make import limited_by
from alray.planning.prediction.plan import Plan
from alray.planning.prediction.predict import predict_step
from alray.planning.prediction.program import Program
from alray.planning.prediction.search import every_cut, step_of
from alray.planning.prediction.seconds import RunSeconds
from alray.planning.prediction.setting import StepSetting
from alray.planning.prediction.simulate import simulate
from alray.planning.schedules.actions import parse
from alray.planning.schedules.durations import Durations

from ...plans import plan_of as planned


def over_a_link(*, up_s: float, link_s: float, latency_s: float, buffer_s: float) -> Durations:
    """Two stages that only compute F, for one second, and the link between them."""
    return Durations(
        {"F": (1, 1)},
        up_s=(up_s,),
        up_link_s=(link_s,),
        down_link_s=(0,),
        link_latency_s=(latency_s,),
        link_buffer_s=(buffer_s,),
        lines=("itself",),
    )


def starts(timeline, stage: int) -> list[float]:
    return [round(float(start), 6) for start in timeline.starts_s[stage]]


def test_a_message_takes_the_link_and_then_its_latency() -> None:
    lists = [[parse("0F0"), parse("0S0")], [parse("1R0"), parse("1F0")]]
    durations = over_a_link(up_s=0.2, link_s=3, latency_s=0.5, buffer_s=0)
    timeline = simulate(Program.of(lists), durations, in_flight=1)
    assert starts(timeline, 0) == [0, 1]
    assert starts(timeline, 1) == [4.6, 4.7]  # 1 computed, 0.1 packed, 3 on the link, 0.5 late; then 0.1 unpacked


def test_times_that_are_not_known_yet_are_not_computed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lay in the memory before gave warnings."""
    monkeypatch.setattr(np, "empty", lambda shape, dtype=float: np.full(shape, np.inf if dtype is float else 1, dtype))
    lists = [[parse("0F0"), parse("0S0")], [parse("1R0"), parse("1F0")]]
    with np.errstate(invalid="raise"):
        simulate(Program.of(lists), over_a_link(up_s=0.2, link_s=3, latency_s=0.5, buffer_s=np.inf), in_flight=1)


def test_the_sender_waits_for_the_message_before() -> None:
    """It computes meanwhile, and it packs the next message before it waits."""
    lists = [
        [parse(text) for batch in range(3) for text in (f"0F{batch}", f"0S{batch}")],
        [parse(text) for batch in range(3) for text in (f"1R{batch}", f"1F{batch}")],
    ]
    durations = over_a_link(up_s=0.2, link_s=3, latency_s=0, buffer_s=0)
    timeline = simulate(Program.of(lists), durations, in_flight=4)
    assert starts(timeline, 0) == [0, 1, 1.1, 4, 4.1, 7]
    assert starts(timeline, 1)[::2] == [4.1, 7.1, 10.1]


def test_the_system_takes_some_bytes_from_the_sender_at_once() -> None:
    lists = [
        [parse(text) for batch in range(4) for text in (f"0F{batch}", f"0S{batch}")],
        [parse(text) for batch in range(4) for text in (f"1R{batch}", f"1F{batch}")],
    ]
    durations = over_a_link(up_s=0, link_s=3, latency_s=0, buffer_s=4)
    timeline = simulate(Program.of(lists), durations, in_flight=4)
    assert starts(timeline, 0)[1::2] == [1, 2, 3, 6]  # 3 s are left of the first at most, 6 s of the first two
    assert starts(timeline, 1)[::2] == [4, 7, 10, 13]


def test_a_stage_sends_to_both_neighbours_through_one_card() -> None:
    """2 s up and 2 s down at once: together through one card, each for itself on lines of their own."""
    lists = [
        [parse(text) for text in ("0R0v", "0F0")],
        [parse(text) for text in ("1F0", "1S0v", "1S0")],
        [parse(text) for text in ("2R0", "2F0")],
    ]
    each = Durations(
        {"F": (1, 1, 1)},
        up_link_s=(2, 2),
        down_link_s=(2, 2),
        link_latency_s=(0, 0),
        link_buffer_s=(9, 9),
        lines=("itself", "itself"),
    )
    assert starts(simulate(Program.of(lists), each, in_flight=1), 2)[0] == 3
    for through in ("card", "device"):
        shared = simulate(Program.of(lists), replace(each, lines=(through, through)), in_flight=1)
        assert (starts(shared, 0)[0], starts(shared, 2)[0]) == (3, 5)
    apart = simulate(Program.of(lists), replace(each, lines=("card", "device")), in_flight=1)
    assert (starts(apart, 0)[0], starts(apart, 2)[0]) == (3, 3)


def test_messages_within_a_node_do_not_wait_for_its_card(make_costs) -> None:
    """Each stage sends outputs to one neighbour and gradients to the other, and one of them is on its own node."""
    two = machines_of([(DEVICES["A100"], 2, 2, link_of("1 MB/s"), link_of("100 GB/s"))])
    costs, links = make_costs(output_bytes=10_000), two.stage_devices(4, ring=True).links
    costs = replace(costs, components=costs.components * 2)
    apart = StepSetting("zero_bubble", costs, 4, in_flight=4, micro_batches=8, virtual_stages=2, links=links)
    together = replace(apart, links=tuple(link and replace(link, of_device=False) for link in links))
    faster_s, slower_s = (predict_step(each, (1,) * 8).step_time_s for each in (apart, together))
    assert faster_s == pytest.approx(0.9 * slower_s, rel=0.01)


def test_a_step_takes_as_long_as_the_link(make_costs) -> None:
    costs = make_costs(output_bytes=1_000)
    link = Link(latency_s=1e-3, up_s_per_byte=1e-4, down_s_per_byte=1e-4, buffer_bytes=1e6)
    near = StepSetting("streamed", costs, 2, in_flight=4)
    far = replace(near, links=(link, None))
    assert predict_step(near, (2, 2)).step_time_s == pytest.approx(0.075)
    assert predict_step(far, (2, 2)).step_time_s == pytest.approx(0.2)  # 2,000 bytes
    assert predict_step(far, (1, 3)).step_time_s == pytest.approx(0.11)  # 1,000 bytes, and 110 ms of computing
    assert (best_cut(near).cut, best_cut(far).cut) == ((2, 2), (1, 3))
    assert step_of(far, (1, 3)) == pytest.approx(0.11)


def test_copies_of_the_last_stage_take_its_link(make_costs) -> None:
    link = Link(latency_s=0.0, up_s_per_byte=1e-6, down_s_per_byte=1e-4, buffer_bytes=1e6)
    line, within = replace(link, own_line=True), replace(link, down_s_per_byte=1e-6, of_device=True)
    costs = replace(make_costs(), copy_bytes=2_000, copy_every=2)
    for setting, step_s in (
        (StepSetting("streamed", costs, 3, in_flight=4, links=(link, link, None)), 0.2),
        (StepSetting("streamed", replace(costs, copy_every=50), 3, in_flight=4, links=(link, link, None)), 0.06),
        (StepSetting("streamed", costs, 3, in_flight=4, links=(line, line, line)), 0.1),
        (StepSetting("streamed", costs, 3, in_flight=4, links=(link, within, None)), 0.1),
        (StepSetting("streamed", costs, 3, in_flight=4), 0.06),
    ):
        found, prediction = best_cut(setting), predict_step(setting, (1, 1, 2))
        assert prediction.step_time_s == pytest.approx(step_s, abs=0.016) and found.is_best
        lower = int(within not in setting.links)
        said = f"link between stages {lower} and 2" in limited_by(setting, (1, 1, 2), prediction)
        assert said == (step_s >= 0.1)


@pytest.mark.parametrize("schedule", ["streamed", "1f1b"])
def test_a_message_without_bytes_is_late_too(make_costs, schedule: str) -> None:
    """Whichever cuts are simulated with it: those whose messages have bytes, or none."""
    costs = make_costs(output_bytes=1_000)
    empty = replace(costs.components[1], output_bytes=0)
    costs = replace(costs, components=(costs.components[0], empty, *costs.components[2:]))
    link = Link(latency_s=0.5, up_s_per_byte=1e-9, down_s_per_byte=1e-9)
    setting = StepSetting(schedule, costs, 2, in_flight=1, micro_batches=1 if schedule == "streamed" else 4)
    setting = replace(setting, links=(link, None))
    cuts = list(every_cut(4, 2))
    alone = {cut: step_of(setting, cut) for cut in cuts}
    assert min(alone.values()) >= 0.5 - 1e-9
    assert {cut: predict_step(setting, cut).step_time_s for cut in cuts} == pytest.approx(alone)
    best = best_cut(setting)
    assert best.step_s == pytest.approx(alone[best.cut]) and best.step_s == pytest.approx(min(alone.values()))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved_1f1b"])
def test_pipelines_go_over_links_both_ways(make_costs, schedule: str) -> None:
    costs = make_costs(output_bytes=1_000)
    virtual = 2 if schedule == "interleaved_1f1b" else 1
    cut = (1, 1, 1, 1) if virtual == 2 else (2, 2)
    near = StepSetting(schedule, costs, 2, in_flight=4, micro_batches=4, virtual_stages=virtual)
    link = Link(latency_s=0.0, up_s_per_byte=1e-4, down_s_per_byte=1e-4)
    far = replace(near, links=(link, link if virtual == 2 else None))
    durations = RunSeconds(far).of_cuts(cut)
    assert durations.up_link_s == durations.down_link_s
    busy_s = 4 * (sum(durations.up_link_s[::2]) + sum(durations.down_link_s[1::2]))
    assert predict_step(far, cut).step_time_s >= max(busy_s, predict_step(near, cut).step_time_s)


def test_the_plan_keeps_links_and_nodes(make_costs) -> None:
    link = Link(latency_s=1e-3, up_s_per_byte=1e-4, down_s_per_byte=2e-4, buffer_bytes=1e6)
    plan = planned(
        method="associated_learning",
        schedule="streamed",
        stages=2,
        replicas=1,
        partition=[2, 2],
        in_flight=4,
        costs=make_costs(output_bytes=1_000),
        cores=None,
        steps_per_epoch=10,
        total_steps=100,
        evaluation_batches=2,
        links=(link, None),
        nodes=("a", "b"),
    )
    assert Plan.from_json(plan.as_json()) == plan
    assert plan.limited_by.startswith("the link between stages 0 and 1 takes 200 ms")
    assert plan.limited_by.endswith("[1, 3] gives 1.82x")


def test_a_link_in_units_that_suit_it() -> None:
    assert str(Link(2.1e-4, 8 / 941e6, 8 / 10e9)) == "941 Mbit/s up, 1.25 GB/s down, 0.21 ms"
    assert str(Link(1.234, 8 / 56e3, 8 / 56e3)) == "0.056 Mbit/s, 1,234 ms"
