"""A class for each token or pixel: methods that learn it, on any stages, and what is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import alray

IDS = torch.randint(1, 30, (60, 10), generator=torch.Generator().manual_seed(1))
TAGS = torch.where(
    torch.arange(10) < torch.randint(4, 11, (60, 1), generator=torch.Generator().manual_seed(2)), IDS % 4, -100
)
COST = {"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}
TINY: dict[str, Any] = {
    "task": {"kind": "dense_classification", "metric": "macro_f1"},
    "data": {"batch_size": 20},
    "optimizer": {"kind": "sgd", "lr": 0.5},
    "run": {"steps": 6, "train": "never", "checkpoint": None},
    "inline": True,
    "progress": False,
}
NO_TASK = {key: value for key, value in TINY.items() if key != "task"}
METHODS: dict[str, Any] = {
    "BP": "backpropagation",
    "DGL": "decoupled_greedy",
    "AL": {"kind": "associated_learning", "label_dim": 8},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.chdir(tmp_path)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.first, self.last = nn.Embedding(30, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(self.table(x)).relu())


class Pixels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.inner = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.last = nn.Conv2d(4, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.inner(self.first(x).relu()).relu())


def sha256(run: alray.Run) -> str | None:
    return run.summary.weights_sha256


def in_torch(net: nn.Module, samples: torch.Tensor, labels: torch.Tensor, order: torch.Tensor) -> nn.Module:
    """A loop of torch over these mini-batches."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for rows in order:
        optimizer.zero_grad()
        scores = net(samples[rows])
        loss = cross_entropy(scores.movedim(-1, 1) if scores.ndim == 3 else scores, labels[rows])
        loss.backward()
        optimizer.step()
    return net


@pytest.mark.parametrize("method", METHODS)
def test_tokens_with_padding_train_alike_on_any_stages(method: str) -> None:
    train = partial(alray.train, Tagger(), (IDS, TAGS), (IDS, TAGS), method=METHODS[method], **TINY)
    one, two = train(stages=1), train(stages=2, pipeline={"schedule": "naive"} if method == "BP" else {})
    assert sha256(one) == sha256(two)
    assert one.summary.scores.validation == two.summary.scores.validation
    ignored = {**TINY, "task": {**TINY["task"], "ignored": 77}}
    labels = TAGS.where(TAGS >= 0, 77)
    given = ((IDS, labels), (IDS, labels))
    assert sha256(alray.train(Tagger(), *given, method=METHODS[method], stages=1, **ignored)) == sha256(one)


@pytest.mark.parametrize(("stages", "tokens"), [(1, True), (2, True), (2, False)])
def test_backpropagation_is_a_loop_of_torch(stages: int, tokens: bool) -> None:
    """In micro-batches that have other numbers of ignored positions, too."""
    samples: torch.Tensor = IDS if tokens else torch.randn(60, 1, 5, 2, generator=torch.Generator().manual_seed(3))
    labels = TAGS if tokens else TAGS.view(60, 5, 2).clamp(max=2)
    net = Tagger() if tokens else Pixels()
    run = alray.train(
        net,
        (samples, labels),
        method="backpropagation",
        stages=stages,
        **{**TINY, "data": {"batch_size": 60, "validation_fraction": 0.0}, "run": {**TINY["run"], "steps": 3}},
    )
    expected = in_torch(net, samples, labels, torch.arange(60).expand(3, 60))
    for name, value in run.model().state_dict().items():
        torch.testing.assert_close(value, expected.state_dict()[name], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("method", METHODS)
def test_a_loss_of_the_program_learns_positions(method: str) -> None:
    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(outputs.movedim(-1, 1), labels)

    run = alray.train(Tagger(), (IDS, TAGS), (IDS, TAGS), method=METHODS[method], loss=loss, stages=1, **NO_TASK)
    assert run.summary.cost.validation < 1.6


@pytest.mark.parametrize(
    ("call", "key", "said"),
    [
        (lambda: alray.train(Tagger(), (IDS, TAGS), inline=True), "data", "task='dense_classification'"),
        (
            lambda: alray.train(
                Pixels(), (torch.zeros(60, 1, 5, 2), TAGS.view(60, 5, 2)), loss=cross_entropy, **NO_TASK
            ),
            "method.kind",
            "method=backpropagation",
        ),
        (lambda: alray.train(Tagger(), (IDS, TAGS.float()), **TINY), "data", r"labels.long\(\)"),
        (
            lambda: alray.train(Tagger(), (IDS, TAGS), method="forward_forward", **TINY),
            "method.kind",
            "backpropagation",
        ),
        (
            lambda: alray.train(Pixels(), (IDS.float().view(60, 1, 5, 2), TAGS.view(60, 5, 2)), **TINY, stages=1),
            "method.kind",
            "method=backpropagation",
        ),
        (
            lambda: alray.train(Tagger(), (IDS, TAGS[:, :9]), **{**TINY, "method": "backpropagation"}),
            "model.with",
            r"9",
        ),
    ],
)
def test_what_does_not_fit_is_told_with_what_does(call: Any, key: str, said: str) -> None:
    with pytest.raises(alray.AlrayError, match=said) as caught:
        call()
    assert [each.key for each in caught.value.problems] == [key]
