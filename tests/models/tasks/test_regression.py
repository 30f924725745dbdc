"""How the prediction of a regression is shown."""

from __future__ import annotations

import pytest
import torch

from alray.models.task import make_task
from alray.parts.tasks.regression.keys import Regression


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (torch.tensor([1e6 + 0.25, 0.1, 3.0]), "a 1000000.25, b 0.1, c 3.0"),
        (
            torch.tensor([1_700_000_012.34, 1e6 + 123.456, 2 / 3], dtype=torch.float64),
            "a 1700000012, b 1000123.456, c 0.6666666667",
        ),
    ],
    ids=["float32", "float64"],
)
def test_a_large_target_keeps_its_digits(values: torch.Tensor, shown: str) -> None:
    assert str(make_task(Regression(kind="regression"), 3).prediction("x", values, "abc", 1)) == shown


@pytest.mark.parametrize("rows", [1, 3])
def test_the_r2_of_equal_targets_is_not_defined(rows: int) -> None:
    """Also where the mean of equal numbers is rounded to another one."""
    tally = make_task(Regression(kind="regression"), 2).tally()
    tally.take(torch.zeros(rows, 2), torch.full((rows, 2), 0.1, dtype=torch.float64))
    assert tally.value() is None and list(tally.undefined) == [0, 1]


def test_equal_targets_are_left_out_of_the_mean() -> None:
    tally = make_task(Regression(kind="regression"), 2).tally()
    tally.take(torch.tensor([[1.0, 0.5], [2.0, 0.5], [2.0, 0.5]]), torch.tensor([[1.0, 7.0], [2.0, 7.0], [3.0, 7.0]]))
    assert tally.value() == pytest.approx(0.5) and list(tally.undefined) == [1]
