"""Learning rates at the steps where they can be told by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter
from torch.optim import lr_scheduler

from alray.config.sections.duration import Duration, parse_duration
from alray.config.sections.lr_schedule import LrSchedule
from alray.core.errors import PlanError
from alray.runtime.stage.learning_rate import learning_rate


def rate(
    step: int,
    *,
    total_steps: int | None = 100,
    steps_per_epoch: int = 10,
    batch_size: int | None = None,
    accumulate: int = 1,
    **schedule: Any,
) -> float:
    return learning_rate(
        0.1,
        TypeAdapter[LrSchedule](LrSchedule).validate_python(schedule),
        step,
        mini_batches=partial(in_epochs_of, steps_per_epoch),
        total_steps=total_steps,
        batch_size=batch_size,
        accumulate=accumulate,
    )


def in_epochs_of(steps_per_epoch: int, duration: Duration) -> int:
    return round(duration.count * {"epochs": steps_per_epoch, "steps": 1}[duration.unit])


def test_constant() -> None:
    assert [rate(step, kind="constant", total_steps=None) for step in (0, 1, 1000)] == [0.1, 0.1, 0.1]


def test_warm_up_rises_in_equal_steps_to_the_rate() -> None:
    rates = [rate(step, kind="constant", warmup_epochs=0.5) for step in range(6)]
    assert rates == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1])


@pytest.mark.parametrize("batches", [3, 7, 49, 1000])
def test_the_edges_of_the_warm_up_are_exact(batches: int) -> None:
    values = {"warmup_epochs": 1, "steps_per_epoch": batches, "total_steps": 2 * batches}
    linear = {"kind": "linear", "final_factor": 0.3}
    for kind in ({"kind": "constant"}, {"kind": "cosine", "final_lr": 0.03}, linear):
        assert rate(batches - 1, **kind, **values) == rate(batches, **kind, **values) == 0.1
        scaled = {"scale_with_batch": "linear", "reference_batch_size": 256, "batch_size": 2048, "warmup_from": "base"}
        assert rate(0, **kind, **values, **scaled) == 0.1
        assert rate(batches, **kind, **values, **scaled) == 0.1 * 8


def test_a_decay_ends_exactly() -> None:
    for step in (100, 101):
        assert rate(step, kind="cosine", final_lr=0.03) == 0.03
        assert rate(step, kind="linear", final_factor=0.3) == 0.1 * 0.3


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


@pytest.mark.parametrize("missing", ["batch_size", "reference_batch_size"])
def test_what_is_needed_to_scale(missing: str) -> None:
    values = {"kind": "constant", "scale_with_batch": "linear", "reference_batch_size": 8, "batch_size": 8}
    with pytest.raises(PlanError, match="needs the size of the batch") as caught:
        rate(0, **{**values, missing: None})
    assert caught.value.problems[0].key == "lr_schedule.scale_with_batch"


@pytest.mark.few
@pytest.mark.parametrize(
    "schedule",
    [
        {"kind": "constant"},
        {"kind": "cosine", "final_lr": 0.01},
        {"kind": "linear", "final_factor": 0.2},
        {"kind": "multi_step", "at": [parse_duration("1 epoch"), parse_duration("4 epochs")], "factor": 0.1},
    ],
)
@pytest.mark.parametrize("warmup_from", ["zero", "base"])
def test_accumulated_mini_batches_have_the_rate_of_one_as_large_as_all_of_them(
    schedule: dict[str, Any], warmup_from: str
) -> None:
    values = {**schedule, "warmup_from": warmup_from, "warmup_epochs": 2}
    scaled = {"scale_with_batch": "square_root", "reference_batch_size": 8}
    for update in range(30):
        whole = rate(update, steps_per_epoch=5, total_steps=30, batch_size=64, **values, **scaled)
        for part in range(4):
            step = 4 * update + part
            parts = {"steps_per_epoch": 20, "total_steps": 120, "batch_size": 16, "accumulate": 4}
            assert rate(step, **parts, **values, **scaled) == whole


def test_cosine() -> None:
    assert rate(0, kind="cosine", final_lr=0.02) == 0.1
    assert rate(50, kind="cosine", final_lr=0.02) == pytest.approx(0.06)
    assert rate(100, kind="cosine", final_lr=0.02) == pytest.approx(0.02)
    assert rate(150, kind="cosine", final_lr=0.02) == pytest.approx(0.02)
    # With one epoch of warm-up the cosine spans steps 10 to 100.
    assert rate(10, kind="cosine", final_lr=0.0, warmup_epochs=1) == 0.1
    assert rate(55, kind="cosine", final_lr=0.0, warmup_epochs=1) == pytest.approx(0.05)
    # A third of the way: (1 + cos 60 degrees) / 2 = 3 / 4.
    assert rate(40, kind="cosine", final_lr=0.0, warmup_epochs=1) == pytest.approx(0.075)


def test_linear() -> None:
    assert rate(0, kind="linear", final_factor=0.1, decay_share=0.5) == 0.1
    assert rate(25, kind="linear", final_factor=0.1, decay_share=0.5) == pytest.approx(0.055)
    assert rate(50, kind="linear", final_factor=0.1, decay_share=0.5) == pytest.approx(0.01)
    assert rate(99, kind="linear", final_factor=0.1, decay_share=0.5) == pytest.approx(0.01)
    assert rate(50, kind="linear", final_factor=0.0) == pytest.approx(0.05)


def test_a_linear_decay_over_a_share_of_the_run() -> None:
    half = {"kind": "linear", "final_factor": 0.2, "decay_share": 0.5}
    assert [rate(step, **half) for step in (0, 25, 50, 99)] == pytest.approx([0.1, 0.06, 0.02, 0.02])
    # After a warm-up of 10 of the 100 mini-batches, 45 of the 90 that are left.
    assert [rate(step, **half, warmup_epochs=1) for step in (10, 55)] == pytest.approx([0.1, 0.02])


def test_a_decay_needs_an_end() -> None:
    with pytest.raises(PlanError, match=r"^lr_schedule\.kind: .*`cosine`"):
        rate(0, kind="cosine", final_lr=0.0, total_steps=None)


def torchs(make: Any, steps: int) -> list[float]:
    """The rates that a scheduler of torch gives for mini-batches."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    scheduler, rates = make(optimizer), []
    for step in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        if step + 1 < steps:
            scheduler.step()
    return rates


@pytest.mark.few
@pytest.mark.parametrize(
    ("schedule", "make"),
    [
        ({"kind": "cosine", "final_lr": 0.01}, partial(lr_scheduler.CosineAnnealingLR, T_max=100, eta_min=0.01)),
        (
            {"kind": "linear", "final_factor": 0.2, "decay_share": 0.4},
            partial(lr_scheduler.LinearLR, start_factor=1.0, end_factor=0.2, total_iters=40),
        ),
        (
            {"kind": "multi_step", "at": [parse_duration(each) for each in ("3 epochs", "45 steps")], "factor": 0.1},
            partial(lr_scheduler.MultiStepLR, milestones=[30, 45], gamma=0.1),
        ),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_as_torchs(schedule: dict[str, Any], make: Any) -> None:
    assert [rate(step, **schedule) for step in range(100)] == pytest.approx(torchs(make, 100), rel=1e-9, abs=1e-15)


def test_milestones_are_counted_from_the_start_of_the_run() -> None:
    schedule = {"kind": "multi_step", "at": [parse_duration("3 epochs")], "factor": 0.1, "warmup_epochs": 1.0}
    assert [rate(step, **schedule) for step in (4, 10, 29, 30)] == pytest.approx([0.05, 0.1, 0.1, 0.01])
