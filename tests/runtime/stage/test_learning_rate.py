"""Learning rates at the steps where they can be told by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import TypeAdapter

from alray.config.made import no_user_code
from alray.config.sections.duration import Duration, parse_duration
from alray.config.sections.lr_schedule import LrSchedule
from alray.runtime.stage.learning_rate import Rates


def rate(
    step: int,
    *,
    total_steps: int = 100,
    steps_per_epoch: int = 10,
    batch_size: int = 8,
    accumulate: int = 1,
    **schedule: Any,
) -> float:
    """After so many mini-batches."""

    def mini_batches(duration: Duration, batch_size: int) -> int:
        return round(duration.count * {"epochs": steps_per_epoch, "steps": 1}[duration.unit])

    spec: Any = SimpleNamespace(
        optimizer=SimpleNamespace(lr=0.1, accumulate=accumulate),
        lr_schedule=TypeAdapter[LrSchedule](LrSchedule).validate_python(schedule),
        data=SimpleNamespace(batch_size=batch_size),
    )
    data: Any = SimpleNamespace(mini_batches=mini_batches)
    return Rates(spec, no_user_code).at(step + 1, data=data, total_steps=total_steps)


def test_warm_up_rises_in_equal_steps_to_the_rate() -> None:
    rates = [rate(step, kind="constant", warmup_epochs=0.5) for step in range(6)]
    assert rates == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1])


def test_the_rise_from_the_base_rate_goes_up_by_the_same_with_each_mini_batch() -> None:
    rates = [
        rate(
            step,
            kind="constant",
            warmup_epochs=0.5,
            warmup_from="base",
            scale_with_batch="linear",
            reference_batch_size=10,
            batch_size=60,
        )
        for step in range(7)
    ]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.6])


@pytest.mark.parametrize(("rule", "expected"), [("none", 0.1), ("linear", 0.8), ("square_root", 0.1 * 8**0.5)])
def test_scaled_with_the_batch(rule: str, expected: float) -> None:
    values = {"kind": "constant", "scale_with_batch": rule, "reference_batch_size": 256}
    assert rate(0, batch_size=2048, **values) == pytest.approx(expected)
    assert rate(0, batch_size=512, accumulate=4, **values) == pytest.approx(expected)  # samples of an update
    assert rate(0, batch_size=256, **values) == 0.1
    assert rate(4, warmup_epochs=1, batch_size=2048, **values) == pytest.approx(expected / 2)


def test_the_end_of_a_decay_follows_the_batch_where_it_is_relative() -> None:
    scaled = {"scale_with_batch": "linear", "reference_batch_size": 1, "batch_size": 4}
    assert rate(100, kind="linear", final_factor=0.5, **scaled) == 0.2
    assert rate(100, kind="cosine", final_lr=0.01, **scaled) == 0.01


def test_milestones_are_counted_from_the_start_of_the_run() -> None:
    schedule = {"kind": "multi_step", "at": [parse_duration("3 epochs")], "factor": 0.1, "warmup_epochs": 1.0}
    assert [rate(step, **schedule) for step in (4, 10, 29, 30)] == pytest.approx([0.05, 0.1, 0.1, 0.01])
