"""Metrics of the next token, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from alray.data.tokens import Bytes
from alray.models.task import make_task
from alray.parts.tasks.next_token.keys import NextToken

SURE = math.log(255)
"""A score that gives its token a probability of one half among 256."""


def bits_per_byte(*parts: list[int]) -> float | None:
    """Of a network that gives each token half of the probability, so that it costs one bit."""
    learning = make_task(NextToken(kind="next_token", metric="bits_per_byte"), 256, (len(parts[0]),))
    tally = learning.tally()
    for part in parts:
        labels = torch.tensor([part])
        scores = torch.nn.functional.one_hot(labels, 256).double() * SURE
        tally.take(learning.measured(scores, labels), labels)
    return tally.value()


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        (["abcd"], 5 / 4),
        (["ab", "cd"], 6 / 4),
        (["", "", "ab"], 5 / 2),
        (["é", "a"], 5 / 3),
    ],
)
def test_the_end_of_a_document_costs_bits_and_is_no_byte(documents: list[str], expected: float) -> None:
    tokens = Bytes().stream(documents).tolist()
    assert bits_per_byte(tokens) == pytest.approx(expected)
    assert bits_per_byte(*([token] for token in tokens)) == pytest.approx(expected)


def test_a_text_without_ends_has_a_bit_for_each_byte() -> None:
    assert bits_per_byte(list(b"abcdef")) == pytest.approx(1)


def test_a_set_without_a_byte_has_no_value() -> None:
    assert bits_per_byte([0, 0]) is None


@pytest.mark.parametrize(
    ("metric", "score", "expected"),
    [("perplexity", 1e4, math.inf), ("perplexity", 705.0, math.exp(705.0)), ("top_1", math.nan, math.nan)],
)
def test_what_is_no_number_is_shown_as_none(metric: Any, score: float, expected: float) -> None:
    learning = make_task(NextToken(kind="next_token", metric=metric), 2, (2,))
    labels, scores = torch.zeros(1, 2, dtype=torch.int64), torch.tensor([[[0.0, score]] * 2], dtype=torch.float64)
    tally = learning.tally()
    tally.take(learning.measured(scores, labels), labels)
    assert tally.value() == pytest.approx(expected, nan_ok=True)
    assert not math.isfinite(expected) or learning.metric.is_better(expected, math.inf)
    assert math.isfinite(expected) or not learning.metric.is_better(expected, None)
