"""Which labels a prediction shows, by how the method trains their scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from alray.models.network import learning_of
from alray.models.shape import Shape


def test_scores_that_were_fitted_to_0_and_1_are_shares(load_small: Callable[..., Any]) -> None:
    def answer(loss: str) -> Any:
        method = f"method={{kind: associated_learning, first_label_loss: {loss}}}"
        spec = load_small("task={kind: multi_label}", method).spec
        scores = torch.tensor([0.25, 0.5, 1.5, -0.5])
        return learning_of(spec, 4, Shape((4,)), lambda name: name).prediction("x", scores, "abcd", 1)

    assert answer("mse").labels == ["b", "c"]
    assert answer("mse").scores == {"a": 0.25, "b": 0.5, "c": 1.0, "d": 0.0}
    assert answer("auto").labels == ["a", "b", "c"]
