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
