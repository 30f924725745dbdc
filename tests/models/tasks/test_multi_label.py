"""Which labels a prediction shows, by how the method trains their scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from alray.models.network import Network
from alray.models.task import make_task
from alray.parts.tasks.multi_label.keys import MultiLabel


def test_scores_that_were_fitted_to_0_and_1_are_shares(make_network: Callable[..., Network]) -> None:
    def answer(loss: str) -> Any:
        method = f"method={{kind: associated_learning, first_label_loss: {loss}}}"
        network = make_network("task={kind: multi_label}", method)
        return network.method.task.learning.prediction("x", torch.tensor([0.25, 0.5, 1.5, -0.5]), "abcd", 1)

    assert answer("mse").labels == ["b", "c"]
    assert answer("mse").scores == {"a": 0.25, "b": 0.5, "c": 1.0, "d": 0.0}
    assert answer("auto").labels == ["a", "b", "c"]


def test_a_label_without_a_sample_is_left_out_of_the_mean() -> None:
    from sklearn.metrics import average_precision_score

    scores = torch.tensor([[0.1, 0.9, 0.4], [0.8, 0.2, 0.5], [0.7, 0.3, 0.1]])
    labels = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    tally = make_task(MultiLabel(kind="multi_label"), 3).tally()
    tally.take(scores, labels)
    assert list(tally.undefined) == [1]
    wanted = average_precision_score(labels[:, [0, 2]].numpy(), scores[:, [0, 2]].numpy())
    assert tally.value() == pytest.approx(wanted, abs=1e-12)
    none = make_task(MultiLabel(kind="multi_label"), 3).tally()
    none.take(scores, 0 * labels)
    assert none.value() is None and list(none.undefined) == [0, 1, 2]
