"""Learning rates at the steps where they can be told by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from alray.errors import PlanError
from alray.plan.learning_rate import learning_rate


def rate(step: int, *, total_steps: int | None = 100, **schedule: Any) -> float:
    return learning_rate(
        0.1, SimpleNamespace(**{"warmup_epochs": 0.0, **schedule}), step, steps_per_epoch=10, total_steps=total_steps
    )


def test_constant() -> None:
    assert [rate(step, kind="constant", total_steps=None) for step in (0, 1, 1000)] == [0.1, 0.1, 0.1]


def test_warm_up_rises_in_equal_steps_to_the_rate() -> None:
    rates = [rate(step, kind="constant", warmup_epochs=0.5) for step in range(6)]
    assert rates == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1])


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
    assert rate(0, kind="linear", final_factor=0.1, decay_steps=50) == 0.1
    assert rate(25, kind="linear", final_factor=0.1, decay_steps=50) == pytest.approx(0.055)
    assert rate(50, kind="linear", final_factor=0.1, decay_steps=50) == pytest.approx(0.01)
    assert rate(99, kind="linear", final_factor=0.1, decay_steps=50) == pytest.approx(0.01)
    assert rate(50, kind="linear", final_factor=0.0, decay_steps=None) == pytest.approx(0.05)


def test_a_decay_needs_an_end() -> None:
    with pytest.raises(PlanError) as caught:
        rate(0, kind="cosine", final_lr=0.0, total_steps=None)
    assert str(caught.value) == (
        "lr_schedule.kind: lr_schedule `cosine` needs to know where the run ends; "
        "give run.epochs, run.steps or run.samples"
    )
