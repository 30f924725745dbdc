"""Metrics of classes are those of scikit-learn, also where a class has no samples or no predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from alray.models.network import Network
from alray.models.task import make_task
from alray.parts.tasks.classification.keys import Classification

LABELS = torch.tensor([0, 0, 0, 1, 1, 4, 0, 4, 0])
PREDICTED = torch.tensor([0, 1, 0, 1, 0, 4, 2, 0, 0])
"""Of six classes 2 is predicted only, 3 and 5 do not occur."""
BY_SCIKIT_LEARN: dict[str, tuple[str, dict[str, Any]]] = {
    "accuracy": ("accuracy_score", {}),
    "balanced_accuracy": ("balanced_accuracy_score", {}),
    "macro_f1": ("f1_score", {"average": "macro", "zero_division": 0}),
}


@pytest.mark.parametrize("metric", BY_SCIKIT_LEARN)
def test_a_metric(metric: Any) -> None:
    from sklearn import metrics

    tally = make_task(Classification(metric=metric), 6).tally()
    for part in (slice(0, 4), slice(4, None)):
        tally.take(functional.one_hot(PREDICTED[part], 6).double(), LABELS[part])
    name, named = BY_SCIKIT_LEARN[metric]
    wanted = getattr(metrics, name)(LABELS.numpy(), PREDICTED.numpy(), **named)
    assert tally.value() == pytest.approx(wanted, abs=1e-12)
    assert list(tally.undefined) == ([] if metric == "accuracy" else [2, 3, 5])


@pytest.mark.parametrize("metric", BY_SCIKIT_LEARN)
def test_scores_that_are_not_numbers_predict_no_class(metric: Any) -> None:
    tally = make_task(Classification(metric=metric), 2).tally()
    tally.take(torch.full((4, 2), torch.nan), torch.tensor([0, 0, 1, 1]))
    assert tally.value() == 0.0
    tally.take(torch.tensor([[2.0, 1.0]] * 4), torch.tensor([0, 0, 0, 0]))
    assert tally.value() == {"accuracy": 0.5, "balanced_accuracy": 1 / 3, "macro_f1": 0.4}[metric]


@pytest.mark.parametrize("mixed", [(), ("data.mix={mixup: 0.2}",)])
def test_scores_that_were_fitted_to_0_and_1_are_shares(
    make_network: Callable[..., Network], mixed: tuple[str, ...]
) -> None:
    def answer(scores: torch.Tensor, loss: str) -> Any:
        network = make_network(f"method={{kind: associated_learning, first_label_loss: {loss}}}", *mixed, classes=3)
        return network.method.task.learning.prediction("x", scores, "abc", 1)

    assert answer(torch.tensor([0.0, 1.0, 0.0]), "mse").score == 1.0
    assert answer(torch.tensor([-0.1, 0.6, 0.2]), "mse").score == pytest.approx(0.75)
    assert answer(torch.tensor([0.25, 1.5, 0.0]), "mse").score == pytest.approx(0.8)
    assert (answer(torch.tensor([-0.3, -0.2, 0.0]), "mse").score, answer(torch.zeros(3), "auto").score) == (0.0, 1 / 3)
