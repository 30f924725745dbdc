"""A loss and metrics of the program: what trains and is measured, on stages of Ray and after a resume."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import alray
from alray.core.errors import RequestError
from alray.core.run_folder.records import read
from alray.orchestrate import run_spec
from alray.runtime.options import Options

from ..engine.conftest import Asked, Watching

X = torch.randn(60, 6, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
COST = {"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}
TINY: dict[str, Any] = {
    "data": {"batch_size": 10},
    "pipeline": {"costs": [COST, COST]},
    "run": {"steps": 8, "train": "never", "evaluate_every": "2 steps", "checkpoint": {"every": "3 steps", "keep": 9}},
    "progress": False,
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.chdir(tmp_path)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels)


def right(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(1) == labels).double().mean()


class Errors(nn.Module):
    """As a metric of torchmetrics: it takes a set in parts, and says what is better."""

    higher_is_better = False

    def __init__(self) -> None:
        super().__init__()
        self.wrong = self.all = 0

    def update(self, outputs: torch.Tensor, labels: torch.Tensor) -> None:
        self.wrong += int((outputs.argmax(1) != labels).sum())
        self.all += len(labels)

    def reset(self) -> None:
        self.wrong = self.all = 0

    def compute(self) -> torch.Tensor:
        return torch.tensor(self.wrong / self.all)


def sha256(run: alray.Run) -> str | None:
    return run.summary.weights_sha256


@pytest.mark.parametrize("method", ["backpropagation", "decoupled_greedy", "associated_learning"])
def test_a_loss_trains_and_metrics_measure_as_those_of_a_task(method: str) -> None:
    """Of classes, to the same bits; in Associated Learning the first loss then compares classes, not one-hot rows."""
    train = partial(alray.train, net(), (X, Y), (X, Y), method=method, inline=True, **TINY)
    like, own = train(), train(loss=nn.CrossEntropyLoss(), metrics=[right, Errors()])
    if method != "associated_learning":
        assert sha256(own) == sha256(like)
        assert own.summary.scores.validation == like.summary.scores.validation
        assert own.summary.best == like.summary.best
    last = own.records("evaluation").iloc[-1]
    assert last["further.errors.validation"] == pytest.approx(1 - last["validation"])
    assert own.summary.metric == "score"
    assert train(loss=loss, metrics=[Errors()]).summary.metric == "cost"
    lowest = train(loss=loss, metrics=[right], task={"metric": "cost"})
    assert lowest.summary.best is not None
    assert lowest.summary.best.validation == lowest.records("evaluation")["validation"].min()


def test_a_loss_with_weights_is_a_loop_of_torch() -> None:
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))
    keys = {**TINY, "data": {"batch_size": 60, "validation_fraction": 0.0}, "run": {"steps": 2}, "pipeline": {}}
    optimizer = {"kind": "sgd", "lr": 0.5}
    run = alray.train(
        net(), (X, Y), loss=weighted, method="backpropagation", stages=1, optimizer=optimizer, inline=True, **keys
    )
    plain = net()
    sgd = torch.optim.SGD(plain.parameters(), lr=0.5)
    for _ in range(2):
        sgd.zero_grad()
        weighted(plain(X), Y).backward()
        sgd.step()
    for name, value in run.model().state_dict().items():
        torch.testing.assert_close(value, plain.state_dict()[name], rtol=1e-4, atol=1e-6, msg=name)


def test_without_metrics_the_loss_of_the_whole_set_is_measured() -> None:
    run = alray.train(net(), (X, Y), (X, Y), loss=loss, method="backpropagation", inline=True, **TINY)
    with torch.no_grad():
        assert run.summary.cost.validation == pytest.approx(float(loss(run.model()(X), Y)))


def test_labels_come_as_the_data_have_them() -> None:
    """Numbers in floating point that may be classes, in rows of two dimensions."""

    def binary(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        assert labels.shape[1:] == (2, 2)
        return nn.functional.binary_cross_entropy_with_logits(outputs.view_as(labels), labels)

    flags = torch.stack([Y > 0, Y > 1, Y < 1, Y < 2], 1).float().view(60, 2, 2)
    flat = nn.Sequential(net(), nn.ReLU(), nn.Linear(3, 4))
    for method in ("backpropagation", "decoupled_greedy", "associated_learning"):
        run = alray.train(flat, (X, flags), (X, flags), loss=binary, method=method, inline=True, **TINY)
        assert 0.3 < run.summary.cost.validation < 1.5


def test_a_label_may_be_a_number_in_floating_point() -> None:
    def binary(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        assert labels.is_floating_point()
        return nn.functional.binary_cross_entropy_with_logits(outputs.squeeze(1), labels)

    one, labels = nn.Sequential(net(), nn.ReLU(), nn.Linear(3, 1)), (Y > 0).float()
    assert alray.train(one, (X, labels), (X, labels), loss=binary, inline=True, **TINY).summary.cost.validation < 1.5


def test_a_run_on_two_stages_of_ray_is_resumed_with_its_loss_and_metrics() -> None:
    data = ((X, Y), (X, Y), None)
    given = {"loss": loss, "metrics": [right, Errors()]}
    whole = alray.train(net(), *data, inline=True, stages=2, output="whole", **given, **TINY)
    options = Options(run_dir=Path("stopped"), objects=whole.objects, stop_after=4)
    run_spec(whole.spec, [], options, Watching(), Asked())
    resume = partial(alray.load_run("stopped").resume, model=net(), data=data, progress=False)
    with pytest.raises(RequestError, match="give them again, with the loss: metrics"):
        resume(loss=loss)
    ended = resume(**given)
    assert sha256(ended) == sha256(whole) and ended.summary.best == whole.summary.best
    assert [
        [each.further for each in read(Path(folder) / "records.jsonl") if each.kind == "evaluation"]
        for folder in ("stopped", "whole")
    ] == [[each.further for each in read(Path("whole/records.jsonl")) if each.kind == "evaluation"]] * 2


def weighted() -> nn.Module:
    module = nn.CrossEntropyLoss()
    module.scale = nn.Parameter(torch.ones(()))
    return module


def spread(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return ((outputs - labels) ** 2).mean()


@pytest.mark.parametrize(
    ("keys", "key", "said"),
    [
        ({"loss": nn.CrossEntropyLoss}, "loss", r"or an object, such as torch.nn.CrossEntropyLoss\(\)"),
        ({"loss": 3}, "loss", "function of"),
        ({"loss": weighted()}, "loss", "parameters, which no optimizer"),
        ({"loss": nn.NLLLoss(), "method": "decoupled_greedy"}, "loss", "gives scores; give torch.nn.CrossEntropyLoss"),
        ({"metrics": [right]}, "metrics", "go with its loss; .*loss=torch"),
        ({"loss": loss, "task": "regression"}, "task", "a task by itself"),
        ({"task": nn.CrossEntropyLoss()}, "task", "loss="),
        ({"loss": nn.CrossEntropyLoss(reduction="none")}, "loss", r"shape \[\d+\], not one number; .*'mean'"),
        ({"loss": lambda outputs, labels: 1.0}, "loss", r"gave a float, not a tensor; .*\.item\(\)"),
        (
            {"loss": nn.MSELoss()},
            "loss",
            r"RuntimeError in a mini-batch of outputs \[10, 3\] and labels \[10\] of torch.int64: ",
        ),
        ({"loss": spread, "module": nn.Linear(6, 1)}, "loss", r"with the labels of all samples; .*unsqueeze\(1\)"),
    ],
)
def test_what_is_no_loss_is_told(keys: dict[str, Any], key: str, said: str) -> None:
    keys = {"method": "backpropagation", **keys}
    module = keys.pop("module", net())
    with pytest.raises(alray.AlrayError, match=said) as caught:
        alray.train(module, (X, Y), (X, Y), stages=1, inline=True, **keys, **TINY)
    assert [each.key for each in caught.value.problems] == [key]


def apart(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Refuses two types of numbers."""
    return torch.cdist(outputs, labels).diagonal().mean()


def test_labels_of_an_evaluation_have_the_precision_of_the_outputs() -> None:
    keys = {**TINY, "run": {**TINY["run"], "precision": "float64"}}
    data = (X, X[:, :3])
    run = alray.train(net(), data, data, loss=apart, method="backpropagation", stages=1, inline=True, **keys)
    assert run.summary.scores.validation is not None


class Weighed(torch.utils.data.Dataset[Any]):
    """A label of two tensors, as of forecasts with weights."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return X[index], (X[index], torch.ones(6))


def test_a_label_of_several_tensors_is_refused_with_what_a_loss_takes() -> None:
    with pytest.raises(alray.AlrayError, match=r"one tensor as the label.*the `loss` parts it"):
        alray.train(net(), Weighed(), loss=loss, method="backpropagation", stages=1, inline=True, **TINY)


def no_number(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return outputs


def fails(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    raise ValueError("no metric today")


@pytest.mark.parametrize(("metric", "said"), [(no_number, "`no_number` gave a tensor"), (fails, "no metric today")])
def test_a_metric_that_fails_is_told_by_its_name(metric: Callable[..., Any], said: str) -> None:
    with pytest.raises(alray.AlrayError, match=said):
        alray.train(net(), (X, Y), (X, Y), loss=loss, metrics=[metric], inline=True, **TINY)
