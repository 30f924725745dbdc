"""Which labels a prediction shows, by how the method trains their scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from alray.models.network import Network


def test_scores_that_were_fitted_to_0_and_1_are_shares(make_network: Callable[..., Network]) -> None:
    def answer(loss: str) -> Any:
        method = f"method={{kind: associated_learning, first_label_loss: {loss}}}"
        network = make_network("task={kind: multi_label}", method)
        return network.method.task.learning.prediction("x", torch.tensor([0.25, 0.5, 1.5, -0.5]), "abcd", 1)

    assert answer("mse").labels == ["b", "c"]
    assert answer("mse").scores == {"a": 0.25, "b": 0.5, "c": 1.0, "d": 0.0}
    assert answer("auto").labels == ["a", "b", "c"]
