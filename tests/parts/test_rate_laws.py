"""The laws of rates. A rate enters by one row: its keys, and a scheduler of torch that gives the same rates."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter
from torch.optim import lr_scheduler

from alray.config.made import no_user_code
from alray.config.sections.duration import Duration, parse_duration
from alray.config.sections.lr_schedule import RATES, LrSchedule, LrScheduleSection
from alray.core.metric import Metric
from alray.core.run_folder.records import Plateau
from alray.runtime.stage.learning_rate import Rates

RATE, EPOCH, TOTAL = 0.1, 10, 100
AT = [parse_duration(each) for each in ("3 epochs", "45 steps")]
Make = Callable[[torch.optim.Optimizer], Any]
ROWS: tuple[tuple[dict[str, Any], Make], ...] = (
    ({"kind": "constant"}, partial(lr_scheduler.ConstantLR, factor=1.0)),
    ({"kind": "cosine"}, partial(lr_scheduler.CosineAnnealingLR, T_max=TOTAL)),
    ({"kind": "cosine", "final_lr": 0.03}, partial(lr_scheduler.CosineAnnealingLR, T_max=TOTAL, eta_min=0.03)),
    ({"kind": "linear"}, partial(lr_scheduler.LinearLR, start_factor=1.0, end_factor=0.01, total_iters=TOTAL)),
    (
        {"kind": "linear", "final_factor": 0.3, "decay_share": 0.4},
        partial(lr_scheduler.LinearLR, start_factor=1.0, end_factor=0.3, total_iters=40),
    ),
    ({"kind": "multi_step", "at": AT}, partial(lr_scheduler.MultiStepLR, milestones=[30, 45], gamma=0.1)),
    (
        {"kind": "multi_step", "at": AT, "factor": 0.5},
        partial(lr_scheduler.MultiStepLR, milestones=[30, 45], gamma=0.5),
    ),
    ({"kind": "plateau"}, partial(lr_scheduler.ConstantLR, factor=1.0)),  # until the metric changes it
    ({"kind": "one_cycle"}, partial(lr_scheduler.OneCycleLR, max_lr=RATE, total_steps=TOTAL, cycle_momentum=False)),
    (
        {"kind": "one_cycle", "max_lr": 0.4, "pct_start": 0.17, "div_factor": 9.0, "final_div_factor": 50.0},
        partial(
            lr_scheduler.OneCycleLR,
            max_lr=0.4,
            total_steps=TOTAL,
            pct_start=0.17,
            div_factor=9.0,
            final_div_factor=50.0,
            cycle_momentum=False,
        ),
    ),
)
KEYS = [keys for keys, _ in ROWS]
of_each = pytest.mark.parametrize("keys", KEYS, ids=lambda keys: keys["kind"])
warmed_up = pytest.mark.parametrize(
    "keys", [keys for keys in KEYS if keys["kind"] != "one_cycle"], ids=lambda keys: keys["kind"]
)
"""The others rise by themselves, and refuse a warm-up."""


ADAPTER = TypeAdapter[LrScheduleSection](LrSchedule)


def section(**keys: Any) -> LrScheduleSection:
    return ADAPTER.validate_python(keys)


def rate(
    step: int,
    *,
    total: int = TOTAL,
    epoch: int = EPOCH,
    batch: int = 8,
    accumulate: int = 1,
    changes: int = 0,
    **keys: Any,
) -> float:
    def mini_batches(duration: Duration, batch_size: int) -> int:
        return round(duration.count * {"epochs": epoch, "steps": 1}[duration.unit])

    spec: Any = SimpleNamespace(
        optimizer=SimpleNamespace(lr=RATE, accumulate=accumulate),
        lr_schedule=section(**keys),
        data=SimpleNamespace(batch_size=batch),
    )
    data: Any = SimpleNamespace(mini_batches=mini_batches)
    return Rates(spec, no_user_code).at(step + 1, data=data, total_steps=total, changes=changes)


def test_each_rate_has_a_row() -> None:
    assert {keys["kind"] for keys in KEYS} == RATES.sections.keys()


@pytest.mark.parametrize(("keys", "make"), ROWS, ids=lambda value: value["kind"] if isinstance(value, dict) else "")
def test_it_is_that_of_torchs_scheduler(keys: dict[str, Any], make: Make) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=RATE)
    scheduler, theirs = make(optimizer), []
    for _ in range(TOTAL):
        theirs.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    theirs.append(float(optimizer.param_groups[0]["lr"]))
    trained = TOTAL if keys["kind"] == "one_cycle" else TOTAL + 1  # after its last mini-batch torch's cycle goes on
    assert [rate(step, **keys) for step in range(trained)] == pytest.approx(theirs[:trained], rel=1e-9, abs=1e-15)
    assert rate(TOTAL + 9, **keys) == rate(TOTAL, **keys)


@warmed_up
@pytest.mark.parametrize("epoch", [3, 7, 49, 1000])
def test_a_warm_up_ends_exactly_with_the_full_rate(keys: dict[str, Any], epoch: int) -> None:
    if keys["kind"] == "multi_step":
        keys = {**keys, "at": [parse_duration("2 epochs")]}
    warmed = {**keys, "warmup_epochs": 1, "epoch": epoch, "total": 2 * epoch}
    assert rate(epoch - 1, **warmed) == rate(epoch, **warmed) == RATE
    assert rate(0, **warmed) == pytest.approx(RATE / epoch)
    scaled = {"scale_with_batch": "linear", "reference_batch_size": 256, "batch": 2048, "warmup_from": "base"}
    assert rate(0, **warmed, **scaled) == RATE and rate(epoch, **warmed, **scaled) == 8 * RATE


@warmed_up
def test_after_a_warm_up_it_is_that_of_a_run_without_one(keys: dict[str, Any]) -> None:
    """Of a run shorter by the warm-up; what is counted in times is counted from the start of the run."""
    shift = 0 if keys["kind"] == "multi_step" else EPOCH
    for step in (EPOCH, 35, 60, TOTAL):
        assert rate(step, **keys, warmup_epochs=1) == rate(step - shift, **keys, total=TOTAL - shift)


@warmed_up
@pytest.mark.parametrize("warmup_from", ["zero", "base"])
def test_accumulated_mini_batches_have_the_rate_of_one_as_large_as_all_of_them(
    keys: dict[str, Any], warmup_from: str
) -> None:
    if keys["kind"] == "multi_step":
        keys = {**keys, "at": [parse_duration("1 epoch"), parse_duration("4 epochs")]}
    values = {**keys, "warmup_from": warmup_from, "warmup_epochs": 2}
    scaled = {"scale_with_batch": "square_root", "reference_batch_size": 8}
    for update in range(30):
        whole = rate(update, epoch=5, total=30, batch=64, **values, **scaled)
        for part in range(4):
            assert rate(4 * update + part, epoch=20, total=120, batch=16, accumulate=4, **values, **scaled) == whole


def test_a_cycle_of_updates_of_several_mini_batches_is_that_of_larger_ones() -> None:
    keys = {"kind": "one_cycle", "pct_start": 0.4}
    for step in range(120):
        whole = rate(step // 4, total=30, batch=64, **keys)
        assert rate(step, total=118, batch=16, accumulate=4, **keys) == whole


@pytest.mark.parametrize("lowest", [True, False])
@pytest.mark.parametrize(
    "keys",
    [{}, {"patience": 0, "factor": 0.5, "min_lr": 0.003}, {"patience": 2, "cooldown": 3, "threshold": 0.2}],
    ids=str,
)
def test_a_rate_that_follows_a_metric_is_that_of_torchs(keys: dict[str, Any], lowest: bool) -> None:
    """Of values that are equal, better, worse, and not defined; a metric that is not defined is no better."""
    drawn = torch.Generator().manual_seed(3)
    values = torch.randn(200, generator=drawn).cumsum(0).abs().mul(2).round(decimals=0).tolist()
    values[::17] = [math.nan] * len(values[::17])
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=RATE)
    theirs = lr_scheduler.ReduceLROnPlateau(optimizer, "min" if lowest else "max", **keys)
    made, plateau = section(kind="plateau", **keys), Plateau()
    metric = Metric("m", "m", lowest=lowest)
    for step, value in enumerate(values):
        theirs.step(value)
        plateau = made.after(plateau, None if math.isnan(value) else value, metric)
        assert rate(step, changes=plateau.changes, kind="plateau", **keys) == optimizer.param_groups[0]["lr"]
    assert plateau.changes > 1


@of_each
def test_it_depends_on_the_length_of_the_run_where_it_says_so(keys: dict[str, Any]) -> None:
    same = [rate(step, **keys) == rate(step, **keys, total=2 * TOTAL) for step in range(TOTAL)]
    assert all(same) != section(**keys).ends_with_run
