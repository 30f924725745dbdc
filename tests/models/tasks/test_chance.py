"""What a network measures that gives all samples the same scores, by task and metric."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from alray.models.task import make_task
from alray.parts.tasks.classification.keys import Classification
from alray.parts.tasks.multi_label.keys import MultiLabel
from alray.parts.tasks.next_token.keys import NextToken
from alray.parts.tasks.regression.keys import Regression

CLASSES = torch.tensor([0, 0, 0, 1])
TARGETS = torch.tensor([[1.0, 0.0], [3.0, 0.0], [5.0, 3.0]])
FLAGS = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
TEXT = torch.tensor([7, 7, 7, 9], dtype=torch.uint8)
NATS = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))


@pytest.mark.parametrize(
    ("section", "width", "labels", "chance"),
    [
        (Classification(), 2, CLASSES, 0.75),
        (Classification(metric="balanced_accuracy"), 2, CLASSES, 0.5),
        (Classification(metric="macro_f1"), 2, CLASSES, 6 / 7 / 2),
        (Classification(), 4, None, 0.25),
        (Classification(), 2, torch.tensor([0, 5]), 0.5),  # refused when that sample is read
        (Regression(kind="regression"), 2, TARGETS, 0.0),
        (Regression(kind="regression"), 2, None, 0.0),
        (Regression(kind="regression", metric="mean_squared_error"), 2, TARGETS, (8 / 3 + 2) / 2),
        (Regression(kind="regression", metric="mean_squared_error"), 2, None, None),
        (MultiLabel(kind="multi_label"), 2, FLAGS, (1 / 2 + 1 / 4) / 2),
        (NextToken(kind="next_token", metric="nats_per_token"), 256, TEXT, NATS),
        (NextToken(kind="next_token", metric="perplexity"), 256, TEXT, math.exp(NATS)),
        (NextToken(kind="next_token", metric="top_1"), 256, TEXT, 0.75),
    ],
)
def test_chance(section: Any, width: int, labels: Tensor | None, chance: float | None) -> None:
    task = make_task(section, width, (4,) if section.kind == "next_token" else ())
    assert task.chance(labels) == (None if chance is None else pytest.approx(chance))
