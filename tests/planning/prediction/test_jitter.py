"""Computations that take now longer, now shorter make stages and replicas wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from alray.planning.prediction.costs import ComponentCosts, Costs
from alray.planning.prediction.make import limited_by
from alray.planning.prediction.predict import predict_step, program_of
from alray.planning.prediction.setting import StepSetting
from alray.planning.prediction.simulate import simulation_of
from alray.planning.schedules.durations import Durations

Make = Callable[..., Costs]
JITTER_S = 2.0e-3


def steps(schedule: str, forward_s: float, backward_s: float, micro_batches: int, jitter_s: float) -> np.ndarray:
    """Simulated steps of two stages that compute as long."""
    durations = Durations({"F": [forward_s] * 2, "B": [backward_s] * 2, "U": [0.0] * 2})
    equal = ComponentCosts("equal", forward_s, backward_s, 0.0, 0.0, 0.0, 1, 4, 4, 8, 4, 4, 4, 0, (1,))
    costs = Costs("given", "cpu", 1, 16, (equal, equal))
    setting = StepSetting(schedule, costs, stages=2, in_flight=4, micro_batches=micro_batches)
    return simulation_of(program_of(setting), setting.in_flight).uneven_steps(durations, jitter_s)


def test_stages_that_take_turns_lose_nothing() -> None:
    assert steps("naive", 0.01, 0.02, 1, JITTER_S).mean() == pytest.approx(0.06, rel=0.03)


def test_stages_that_wait_for_each_other_lose_what_a_plain_loop_loses() -> None:
    """GPipe with two micro-batches by hand: F of both stages, then B."""
    draw = np.random.default_rng(1).gamma
    f = draw(0.01 / JITTER_S, JITTER_S, (20_000, 4))
    b = draw(0.02 / JITTER_S, JITTER_S, (20_000, 4))
    forwards = f[:, 0] + np.maximum(f[:, 1], f[:, 2]) + f[:, 3]
    backwards = b[:, 0] + np.maximum(b[:, 1], b[:, 2]) + b[:, 3]
    found = np.median(steps("gpipe", 0.01, 0.02, 2, JITTER_S))
    assert found == pytest.approx(np.median(forwards + backwards), rel=0.03)
    assert found > 1.05 * 0.09  # three times F and B without jitter


def test_replicas_wait_for_the_slowest(make_costs: Make) -> None:
    """Four replicas of one stage: all make their update together."""
    costs = make_costs()
    whole = StepSetting("streamed", costs, stages=1, in_flight=4)
    even_s = predict_step(whole, [4]).step_time_s
    found = predict_step(replace(whole, costs=replace(costs, jitter_s=JITTER_S), replicas=4), [4])
    drawn = np.random.default_rng(2).gamma(even_s / JITTER_S, JITTER_S, (20_000, 4)).max(axis=1)
    assert found.even_step_s == pytest.approx(even_s)
    assert found.step_time_s == pytest.approx(np.median(drawn), rel=0.03)


def test_averages_and_messages_always_take_as_long(make_costs: Make) -> None:
    """Replicas that compute nearly nothing, with averages of a second."""
    components = [replace(each, reduce_s=0.25) for each in make_costs().components]
    costs = replace(make_costs(), components=tuple(components), jitter_s=JITTER_S)
    found = predict_step(StepSetting("streamed", costs, stages=1, in_flight=4, replicas=4), [4])
    drawn = np.random.default_rng(2).gamma((found.even_step_s - 1.0) / JITTER_S, JITTER_S, (20_000, 4)).max(axis=1)
    assert found.step_time_s == pytest.approx(1.0 + np.median(drawn), rel=0.01)


def test_the_plan_says_what_uneven_computing_adds(make_costs: Make) -> None:
    setting = StepSetting("1f1b", replace(make_costs(), jitter_s=JITTER_S), stages=2, in_flight=4, micro_batches=4)
    prediction = predict_step(setting, [2, 2])
    added = 100 * (prediction.step_time_s / prediction.even_step_s - 1)
    assert added > 1
    assert f"; waiting for uneven computations adds {added:.2g} %; " in limited_by(setting, [2, 2], prediction)


def test_a_stage_alone_waits_for_nobody(make_costs: Make) -> None:
    setting = StepSetting("streamed", make_costs(), stages=1, in_flight=4)
    uneven = replace(setting, costs=replace(setting.costs, jitter_s=JITTER_S))
    assert predict_step(uneven, [4]).step_time_s == predict_step(setting, [4]).step_time_s
