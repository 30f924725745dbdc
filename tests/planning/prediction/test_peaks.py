"""The most a run of components holds, against a walk through its components one after another."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from alray.planning.prediction.costs import ComponentCosts, Costs
from alray.planning.prediction.peaks import (
    MemoryMoment,
    moments_of,
    price,
    run_peaks,
)
from alray.planning.schedules.table import SCHEDULES

from ...programs import computations

SIZE = 6
Make = Callable[..., Costs]


@pytest.fixture(params=range(4))
def costs(request: pytest.FixtureRequest, make_costs: Make) -> Costs:
    numbers = random.Random(request.param)
    components = []
    for index in range(SIZE):
        kept, gradients = numbers.randint(1, 100), numbers.randint(0, 100)
        fixed = numbers.randint(0, 40)
        components.append(
            replace(
                make_costs().components[0],
                name=f"component {index}",
                gradient_bytes=gradients,
                output_bytes=numbers.randint(0, 60),
                activation_bytes=kept,
                activation_fixed_bytes=min(fixed, kept),
                forward_peak_bytes=numbers.randint(fixed, 150),
                forward_fixed_bytes=fixed,
                backward_peak_bytes=numbers.randint(fixed, 250),
                backward_fixed_bytes=fixed,
                adding_peak_bytes=numbers.randint(fixed, 200),
                adding_fixed_bytes=fixed,
                update_peak_bytes=numbers.randint(0, 300),
            )
        )
    return replace(make_costs(), components=tuple(components))


def runs() -> list[range]:
    return [range(first, end) for first in range(SIZE) for end in range(first + 1, SIZE + 1)]


def most(moments: tuple[MemoryMoment, ...], costs: Costs, parts: int, *own: range) -> float:
    peaks_of = run_peaks(costs, parts)
    peaks = [peaks_of(one.start, one.stop) for one in own]
    return max(float(price(moment, peaks).total) for moment in moments)


def of_part(whole: int, fixed: int, parts: int) -> float:
    return fixed + (whole - fixed) / parts


def left(component: ComponentCosts, parts: int) -> float:
    return of_part(component.activation_bytes, component.activation_fixed_bytes, parts)


def forward(component: ComponentCosts, parts: int) -> float:
    return max(of_part(component.forward_peak_bytes, component.forward_fixed_bytes, parts), left(component, parts))


def backward(component: ComponentCosts, parts: int) -> float:
    return max(of_part(component.backward_peak_bytes, component.backward_fixed_bytes, parts), left(component, parts))


def adding(component: ComponentCosts, parts: int) -> float:
    return max(of_part(component.adding_peak_bytes, component.adding_fixed_bytes, parts), left(component, parts))


def test_local_losses(costs: Costs) -> None:
    """All forwards, then all backwards from the first one up, then the updates; gradients are there all along."""
    for own in runs():
        held = [costs.components[index] for index in own]
        gradients = sum(component.gradient_bytes for component in held)
        totals, kept = [], 0.0
        for component in held:
            totals.append(gradients + kept + forward(component, 1))
            kept += component.activation_bytes
        for place, component in enumerate(held):
            kept -= component.activation_bytes
            below = held[place - 1].output_bytes if place else 0  # which this component holds as its input
            totals.append(gradients - component.gradient_bytes + kept + below + backward(component, 1))
        totals += [gradients + component.update_peak_bytes + held[-1].output_bytes for component in held]
        assert most(moments_of(SCHEDULES["streamed"], 1, 3, 1, 1), costs, 1, own) == pytest.approx(max(totals))


@pytest.mark.parametrize("schedule", ["streamed", "parallel_backward"])
def test_local_losses_in_virtual_stages(costs: Costs, schedule: str) -> None:
    """A mini-batch is done in one virtual stage before it comes to the next; with all backwards at once it is not."""
    own = [range(0, 2), range(3, 6)]
    held = [[costs.components[index] for index in one] for one in own]
    gradients = sum(component.gradient_bytes for one in held for component in one)
    stays = [sum(component.activation_bytes for component in one) for one in held]
    totals, others = [], 0.0
    for place, one in enumerate(held):
        kept = others
        for component in one:
            totals.append(gradients + kept + forward(component, 1))
            kept += component.activation_bytes
        others += stays[place] if schedule == "parallel_backward" else 0.0
    for place, one in enumerate(held):
        others = sum(stays[place + 1 :]) if schedule == "parallel_backward" else 0.0
        kept = others + stays[place]
        for number, component in enumerate(one):
            kept -= component.activation_bytes
            below = one[number - 1].output_bytes if number else 0
            totals.append(gradients - component.gradient_bytes + kept + below + backward(component, 1))
        totals += [gradients + others + component.update_peak_bytes + one[-1].output_bytes for component in one]
    assert most(moments_of(SCHEDULES[schedule], 0, 2, 1, 2), costs, 1, *own) == pytest.approx(max(totals))


@pytest.mark.parametrize("parts", [1, 4])
def test_micro_batches_in_turn(costs: Costs, parts: int) -> None:
    for own in runs():
        held = [costs.components[index] for index in own]
        gradients = sum(component.gradient_bytes for component in held)
        totals, kept, made = [], 0.0, 0.0  # those of the mini-batch before are gone from the start
        for part in range(parts):
            for component in held:
                totals.append(made + kept + forward(component, parts))
                kept += left(component, parts)
            for component in reversed(held):
                kept -= left(component, parts)
                if part == 0:
                    totals.append(made + kept + backward(component, parts))
                    made += component.gradient_bytes
                else:
                    totals.append(made + kept + adding(component, parts))
        totals += [gradients + component.update_peak_bytes for component in held]
        assert most(moments_of(SCHEDULES["1f1b"], 0, 1, parts, 1), costs, parts, own) == pytest.approx(max(totals))


@pytest.mark.parametrize(
    ("schedule", "parts", "virtual_stages"),
    [("naive", 1, 1), ("gpipe", 4, 1), ("1f1b", 4, 1), ("interleaved_1f1b", 4, 2)],
)
@pytest.mark.parametrize("stage", [0, 1])
def test_pipelines(costs: Costs, schedule: str, parts: int, virtual_stages: int, stage: int) -> None:
    """The schedule's order, two stages, the gradients of the mini-batch before gone from the start."""
    own = [range(2, 5)] if virtual_stages == 1 else [range(0, 2), range(3, 6)]
    held = [[costs.components[index] for index in one] for one in own]
    totals, kept, made = [], 0.0, 0.0
    has = [False] * virtual_stages
    for kind, number, _ in computations(SCHEDULES[schedule], stage, 2, parts, virtual_stages):
        place = number // 2
        if kind == "F":
            for component in held[place]:
                totals.append(made + kept + forward(component, parts))
                kept += left(component, parts)
            continue
        for component in reversed(held[place]):
            kept -= left(component, parts)
            totals.append(made + kept + (adding if has[place] else backward)(component, parts))
            made += 0 if has[place] else component.gradient_bytes
        has[place] = True
    totals += [made + component.update_peak_bytes for one in held for component in one]
    moments = moments_of(SCHEDULES[schedule], stage, 2, parts, virtual_stages)
    assert most(moments, costs, parts, *own) == pytest.approx(max(totals))


def test_uncounted_costs_hold_what_forwards_leave(make_costs: Make) -> None:
    """Costs without peaks: gradients and activations, nothing that comes and goes.

    On one stage the gradients of the mini-batch before are gone when the forward begins.
    """
    costs = make_costs()
    gradients = sum(component.gradient_bytes for component in costs.components)
    activations = sum(component.activation_bytes for component in costs.components)
    assert most(moments_of(SCHEDULES["streamed"], 1, 3, 1, 1), costs, 1, range(4)) == gradients + activations
    assert most(moments_of(SCHEDULES["single"], 0, 1, 1, 1), costs, 1, range(4)) == max(gradients, activations)
