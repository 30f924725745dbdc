"""What a network measures that gives all samples the same scores, where the labels are not known or not valid."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from alray.models.task import make_task
from alray.parts.tasks.classification.keys import Classification
from alray.parts.tasks.regression.keys import Regression


@pytest.mark.parametrize(
    ("section", "width", "labels", "chance"),
    [
        (Classification(), 4, None, 0.25),
        (Classification(), 2, torch.tensor([0, 5]), 0.5),  # refused when that sample is read
        (Regression(kind="regression"), 2, None, 0.0),
        (Regression(kind="regression", metric="mean_squared_error"), 2, None, None),
    ],
)
def test_chance(section: Any, width: int, labels: Tensor | None, chance: float | None) -> None:
    task = make_task(section, width)
    assert task.chance(labels) == (None if chance is None else pytest.approx(chance))
