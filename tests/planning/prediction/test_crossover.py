"""Which way to train is fastest: what a crossover predicts, and what it decides by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from alray.core.errors import PlanError, RequestError
from alray.planning.prediction.best import best_cut
from alray.planning.prediction.costs import ComponentCosts, Costs, Link
from alray.planning.prediction.crossover import Axes, Contender, Crossover, Layout, Row, Steps, map_crossover
from alray.planning.prediction.fit import fit_of
from alray.planning.prediction.make import make_plan
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.table import SCHEDULES
from alray.report.crossover import cell, findings, kind_of, refused, winners_table
from alray.report.crossover_page import CrossoverReport

AXES = Axes((1, 2, 4), (4,), ("host", "slow"))
SMALL = Axes((1, 2), (4,), ("host", "slow"))
SLOW = Link(0.0, 1e-4, 1e-4, buffer_bytes=2.0**50)


COMPONENT = ComponentCosts("equal", 0.01, 0.02, 0.0, 0.01, 0.0, 100, 400, 400, 800, 64_000, 1000, 1000, 0, (4,))


def contender(
    method: str, *, local_losses: bool, scale: float = 1.0, spread: tuple[float, float] = (1.0, 1.0)
) -> Contender:
    """Eight equal components; a step on one device takes `scale` x 0.24 s, and messages on a host take no time.
    Averages of replicas take long, but on a host."""
    equal = replace(COMPONENT, forward_s=scale * COMPONENT.forward_s, backward_s=scale * COMPONENT.backward_s)
    alone = Costs("given", "cpu", 1, 64, (equal,) * 8, edge_latency_s=0.0, edge_s_per_byte=0.0, action_overhead_s=0.0)
    alone = replace(alone, spread=spread)

    def setting(layout: Layout, link: str) -> StepSetting:
        schedule, stages, replicas, micro_batches = layout
        share = replace(
            alone,
            batch_size=64 // replicas,
            components=tuple(
                replace(
                    each,
                    forward_s=each.forward_s / replicas,
                    backward_s=each.backward_s / replicas,
                    reduce_s=0.0 if link == "host" else 1.0,
                )
                for each in alone.components
            ),
        )
        links = (SLOW,) * stages if link == "slow" and stages > 1 else ()
        return StepSetting(
            schedule,
            share,
            stages,
            4,
            micro_batches,
            SCHEDULES[schedule].default_virtual_stages,
            replicas=replicas,
            links=links,
        )

    return Contender(method, local_losses, alone, setting)


@pytest.fixture(scope="module")
def crossed() -> Callable[..., Crossover]:
    @cache
    def of(scale: float = 1.0, axes: Axes = AXES, spread: tuple[float, float] = (1.0, 1.0)) -> Crossover:
        both = (
            contender("associated_learning", local_losses=True, scale=scale, spread=spread),
            contender("backpropagation", local_losses=False, spread=spread),
        )
        return map_crossover(Crossover("tiny", {}, axes, both, {}, 64), doing=lambda what: None)

    return of


def limited(usual: Contender, *limits: int) -> Contender:
    """The same on devices of which each stage has one with so many bytes."""

    def setting(layout: Layout, link: str) -> StepSetting:
        return replace(usual.setting(layout, link), memory_limits=(limits * layout[1])[: layout[1]])

    return replace(usual, setting=setting)


def test_each_stage_keeps_within_its_own_device() -> None:
    """The second device is the small one."""
    usual = contender("associated_learning", local_losses=True)
    partitions = []
    for small in (10**6, 200_000):
        only = limited(usual, 10**6, small)
        axes = Axes((1, 2), (4,), ("host",))
        found = map_crossover(Crossover("tiny", {}, axes, (only,), {}, 64), doing=lambda what: None)
        partitions.append(next(row for row in found.at(2, "host") if row.fit.stages == 2).fit.partition)
        assert found.at(1, "host"), "the first device is the large one"
    assert partitions[0] == (4, 4) and partitions[1][0] > 4


def test_a_way_takes_as_long_as_its_plan(crossed: Callable[..., Crossover]) -> None:
    found = crossed()
    ways = {(row.fit.schedule, row.fit.stages, row.fit.setting.replicas) for row in found.rows}
    assert {("2bw", 4, 1), ("streamed", 2, 2), ("single", 1, 4), ("interleaved_1f1b", 2, 1)} <= ways
    for link in AXES.links:
        row = found.at(4, link)[0]
        plan = make_plan(row.fit.setting, "auto", method="x", steps_per_epoch=1, total_steps=None, evaluation_batches=0)
        assert row.step_s == pytest.approx(plan.predicted_step_time_s)
        assert row.fit.partition == plan.partition
        assert list(row.fit.memory_bytes) == [stage.memory.total_bytes for stage in plan.stage_plans]


@pytest.mark.parametrize("scale", [1.2])
def test_without_messages_the_rule_holds(crossed: Callable[..., Crossover], scale: float) -> None:
    found = crossed(scale, replace(AXES, micro_batches=(4, 8), links=("host",)))
    steps = {
        (row.fit.schedule, row.fit.stages, row.fit.micro_batches): row.step_s
        for row in found.at(4, "host")
        if row.fit.setting.replicas == 1
    }
    (alpha,) = [each.alpha for each in found.factors if each.method == "associated_learning"]
    assert alpha is not None and alpha == pytest.approx(scale)
    for stages in (2, 4):
        for parts in (4, 8):
            ratio = steps["1f1b", stages, parts] / steps["streamed", stages, 1]
            assert ratio == pytest.approx((1 + (stages - 1) / parts) / alpha, rel=1e-6)


def test_steps_to_the_target_decide(crossed: Callable[..., Crossover]) -> None:
    even = cell(crossed(), 4, "host")
    assert even.best is not None and even.best.local_losses and even.ratio is not None
    over = int(1000 * even.ratio)
    known = {("backpropagation", None): Steps(1000, "given")}
    for steps, family in ((over - 20, True), (over + 20, False)):
        at = cell(replace(crossed(), steps=known | {("associated_learning", None): Steps(steps, "given")}), 4, "host")
        assert at.best is not None and at.best.local_losses is family
        assert at.is_close and at.ratio == pytest.approx((1000 * even.ratio / steps) ** (1 if family else -1))


def test_what_nobody_knows_is_said_to_be_assumed(crossed: Callable[..., Crossover]) -> None:
    found = replace(crossed(), steps={("backpropagation", None): Steps(1000, "given")})
    sources = {row.fit.schedule: found.steps_of(row.method, row.fit.schedule) for row in found.rows}
    assert sources["1f1b"] == Steps(1000, "given")
    for schedule in ("streamed", "2bw"):
        own = sources[schedule]
        assert own is not None and own.number == 1000 and own.source.startswith("assumed")
    assert all(each.rho == 1.0 and each.rho_source.startswith("assumed") for each in crossed().factors)


def test_a_slow_link_turns_to_local_losses(crossed: Callable[..., Crossover]) -> None:
    found = crossed(1.3, SMALL)
    fast, slow = cell(found, 2, "host"), cell(found, 2, "slow")
    assert fast.best is not None and not fast.best.local_losses
    assert slow.best is not None and slow.best.local_losses


def test_a_place_is_close_where_other_costs_would_turn_it(crossed: Callable[..., Crossover]) -> None:
    """Were computing a hundred times as fast, the messages of two stages would take longer than a device alone."""
    sure, unsure = (cell(crossed(1.3, SMALL, spread), 2, "slow") for spread in ((1.0, 1.0), (0.01, 1.0)))
    assert sure.ratio == unsure.ratio is not None
    assert unsure.is_close and not sure.is_close
    told = findings(crossed(1.3, SMALL, (0.01, 1.0)))
    assert any("or would at one end of what is known of the times of computations, which" in each for each in told)


def test_a_place_is_close_where_any_way_of_the_other_side_would_be_near() -> None:
    """The runner-up is as far at both ends; the third way is near at the low one."""
    both = (contender("associated_learning", local_losses=True), contender("backpropagation", local_losses=False))
    rows = tuple(
        Row(
            own.method,
            "host",
            replace(fit_of(own.setting(layout, "host")), predicted_step_time_s=step_s, predicted_step_range_s=ends),
        )
        for own, layout, step_s, ends in (
            (both[0], ("streamed", 1, 1, 1), 1.0, (0.5, 2.0)),
            (both[1], ("single", 1, 1, 1), 1.2, (0.6, 2.4)),
            (both[1], ("1f1b", 2, 1, 4), 1.3, (0.52, 2.9)),
        )
    )
    axes = Axes((2,), (4,), ("host",))
    for shown, close in ((rows[:2], False), (rows, True)):
        found = Crossover("tiny", {}, axes, both, {}, 64, rows=shown)
        at = cell(found, 2, "host")
        assert (at.best, at.other, at.ratio) == (rows[0], rows[1], pytest.approx(1.2))
        assert at.is_close is close and ("~" in winners_table(found).csv) is close
        told = [each for each in findings(found) if "differ by less than 5 %, or would at one end of what is" in each]
        assert bool(told) is close


def test_one_family_is_compared_by_its_kinds() -> None:
    only = (contender("backpropagation", local_losses=False),)
    found = map_crossover(Crossover("tiny", {}, AXES, only, {}, 64), doing=lambda what: None)
    at = cell(found, 4, "slow")
    assert at.best is not None and at.other is not None and at.ratio is not None
    assert (kind_of(at.best), kind_of(at.other)) == ("BP 2bw", "BP zero_bubble")
    assert at.ratio == pytest.approx(at.other.step_s / at.best.step_s)
    assert "\nslow,4,BP 2bw,4,1,4," in winners_table(found).csv
    page = " ".join(CrossoverReport(found).page().split())
    assert "closer than a prediction can tell" in page
    assert "alpha x rho =" not in page


def test_the_committed_tables_have_the_words_of_today(crossed: Callable[..., Crossover]) -> None:
    found = replace(crossed(1.3, SMALL), steps={("backpropagation", None): Steps(1000, "given")})
    head, *_ = winners_table(found).csv.splitlines()
    for file in (Path(__file__).parents[3] / "docs" / "crossover").glob("*/fastest.csv"):
        assert file.read_text(encoding="utf-8").splitlines()[0] == head


def test_ways_on_fewer_devices_than_are_asked_for() -> None:
    only = (contender("associated_learning", local_losses=True),)
    found = map_crossover(Crossover("tiny", {}, Axes((6,), (8,), ("slow",)), only, {}, 64), doing=lambda what: None)
    assert {row.devices for row in found.at(6, "slow")} == {1, 2, 3, 6}


def test_devices_with_little_memory(crossed: Callable[..., Crossover]) -> None:
    whole = next(row for row in crossed().at(1, "host") if row.fit.schedule == "single")
    limit = max(whole.fit.memory_bytes) // 2
    both = tuple(
        limited(contender(method, local_losses=method != "backpropagation"), limit)
        for method in ("associated_learning", "backpropagation")
    )
    found = map_crossover(Crossover("tiny", {}, SMALL, both, {}, 64), doing=lambda what: None)
    assert {(row.fit.schedule, row.fit.micro_batches) for row in found.at(1, "host")} == {("1f1b", 4)}
    rows = found.at(2, "host")
    assert rows and all(max(row.fit.memory_bytes) <= limit for row in rows)
    assert any(row.fit.setting.recomputes for row in found.rows)


def test_a_way_keeps_its_cut_where_the_search_weighs_no_cut_that_fits() -> None:
    """Of very many cuts of virtual stages the search weighs one, by bytes; stage 1 then has nearly all gradients."""
    usual = contender("backpropagation", local_losses=False)
    components = tuple(
        replace(
            COMPONENT,
            forward_s=0.01 + 0.001 * (index % 5),
            activation_bytes=20_000_000 if index < 3 else 500_000,
            gradient_bytes=0 if index < 3 else 1_000_000,
        )
        for index in range(32)
    )
    limit = 25_000_000

    def setting(layout: Layout, link: str) -> StepSetting:
        if layout[0] != "interleaved_1f1b":
            raise RequestError("this is about one schedule")
        placed = usual.setting(layout, link)
        return replace(placed, costs=replace(placed.costs, components=components), memory_limits=(limit,) * layout[1])

    axes = Axes((2,), (8,), ("host",))
    only = replace(usual, setting=setting)
    found = map_crossover(Crossover("tiny", {}, axes, (only,), {}, 64), doing=lambda what: None)
    (row,) = found.at(2, "host")
    with pytest.raises(PlanError, match="no cut of 32 components"):
        best_cut(row.fit.setting)
    assert row.fit.setting.recomputes and max(row.fit.memory_bytes) <= limit


def test_schedules_that_are_left_out_for_one_reason_are_told_together(crossed: Callable[..., Crossover]) -> None:
    reasons = {("backpropagation", name): f"in {number} parts; say so" for number, name in enumerate(("1f1b", "2bw"))}
    assert refused(replace(crossed(), refused=reasons)) == ["left out: BP by 1f1b, 2bw, because in 0 parts; say so"]
