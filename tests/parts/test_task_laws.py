"""The laws of tasks. A task enters by its losses and its metrics in `ROWS`, as torch and scikit-learn give them.

Those of tokens that scikit-learn does not have are written by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics
from torch import Tensor, nn
from torch.nn import functional

from alray.config.sections.task import TASKS
from alray.data.tokens import END
from alray.models.shape import Shape
from alray.models.task import LearningTask, make_task

SAMPLES, WIDTH, POSITIONS = 40, 5, 3


@dataclass(frozen=True)
class Row:
    """A task.

    Attributes:
        loss: of torch.
        keys: of the section `task`, for this loss and metric.
        metric: from scores and labels, float64 arrays.
        chance: scores of a network that gives all samples the same ones, from the labels.
    """

    task: str
    keys: dict[str, str]
    loss: Callable[[Tensor, Tensor], Tensor]
    metric: Callable[[Any, Any], float]
    chance: Callable[[Any], Any]


def of_classes(metric: Callable[[Any, Any], float]) -> Callable[[Any, Any], float]:
    return lambda scores, labels: metric(labels, scores.argmax(1))


def nats(scores: Any, labels: Any) -> Any:
    """Of each position, [samples, positions]."""
    shares = np.exp(scores) / np.exp(scores).sum(2, keepdims=True)
    return -np.log(np.take_along_axis(shares, labels[:, :, None], 2)[:, :, 0])


def most_frequent(labels: Any) -> Any:
    return np.tile(np.eye(WIDTH)[np.bincount(labels).argmax()], (len(labels), 1))


def of_means(labels: Any) -> Any:
    return np.tile(labels.mean(0), (len(labels), 1))


def of_counts(labels: Any) -> Any:
    shares = np.bincount(labels.ravel(), minlength=WIDTH) / labels.size
    return np.tile(np.log(np.maximum(shares, 1e-300)), (*labels.shape, 1))


def bits_per_byte(scores: Any, labels: Any) -> float:
    return float(nats(scores, labels).sum() / math.log(2) / (labels != END).sum())


F1 = partial(metrics.f1_score, average="macro", zero_division=0)
TOKENS = functional.cross_entropy
ROWS = [
    Row("classification", {}, nn.CrossEntropyLoss(), of_classes(metrics.accuracy_score), most_frequent),
    Row(
        "classification",
        {"metric": "balanced_accuracy"},
        nn.CrossEntropyLoss(),
        of_classes(metrics.balanced_accuracy_score),
        most_frequent,
    ),
    Row("classification", {"metric": "macro_f1"}, nn.CrossEntropyLoss(), of_classes(F1), most_frequent),
    Row(
        "multi_label",
        {},
        nn.BCEWithLogitsLoss(),
        lambda scores, labels: metrics.average_precision_score(labels, scores),
        of_means,
    ),
    Row("regression", {}, nn.MSELoss(), lambda scores, labels: metrics.r2_score(labels, scores), of_means),
    Row(
        "regression",
        {"loss": "absolute_error", "metric": "mean_absolute_error"},
        nn.L1Loss(),
        lambda scores, labels: metrics.mean_absolute_error(labels, scores),
        of_means,
    ),
    Row(
        "regression",
        {"metric": "mean_squared_error"},
        nn.MSELoss(),
        lambda scores, labels: metrics.mean_squared_error(labels, scores),
        of_means,
    ),
    *(
        Row(
            "dense_classification",
            {"metric": metric},
            lambda scores, labels: TOKENS(scores.flatten(0, 1), labels.flatten()),
            lambda scores, labels, of=of: of(labels.ravel(), scores.argmax(2).ravel()),
            lambda labels: np.broadcast_to(np.eye(WIDTH)[np.bincount(labels.ravel()).argmax()], (*labels.shape, WIDTH)),
        )
        for metric, of in (
            ("accuracy", metrics.accuracy_score),
            ("macro_f1", F1),
            ("mean_iou", partial(metrics.jaccard_score, average="macro", zero_division=0)),
        )
    ),
    Row(
        "next_token",
        {"metric": "nats_per_token"},
        lambda scores, labels: TOKENS(scores.flatten(0, 1), labels.flatten()),
        lambda scores, labels: float(nats(scores, labels).mean()),
        of_counts,
    ),
    Row(
        "next_token",
        {"metric": "perplexity"},
        lambda scores, labels: TOKENS(scores.flatten(0, 1), labels.flatten()),
        lambda scores, labels: float(np.exp(nats(scores, labels).mean())),
        of_counts,
    ),
    Row(
        "next_token",
        {"metric": "top_1"},
        lambda scores, labels: TOKENS(scores.flatten(0, 1), labels.flatten()),
        lambda scores, labels: float((scores.argmax(2) == labels).mean()),
        of_counts,
    ),
    Row(
        "next_token",
        {"metric": "bits_per_byte"},
        lambda scores, labels: TOKENS(scores.flatten(0, 1), labels.flatten()),
        bits_per_byte,
        of_counts,
    ),
]
each = pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.task} {' '.join(row.keys.values())}".strip())


def test_every_task_and_metric_has_a_row() -> None:
    rows = {(row.task, task_of(row).metric.name) for row in ROWS}
    sections = TASKS.sections.items()
    by_keys = {
        (name, metric)
        for name, section in sections
        if "metric" in section.model_fields
        for metric in section.model_fields["metric"].annotation.__args__
    }
    assert rows == by_keys | {(name, section.metric_name) for name, section in sections if section.metric_name}


def task_of(row: Row) -> LearningTask:
    sample = (POSITIONS,) if row.task == "next_token" else ()
    if row.task == "dense_classification":
        sample = Shape((), labels=Shape((POSITIONS,), torch.int64))
    return make_task(TASKS.section(row.task, **row.keys), WIDTH, sample)


def given(task: LearningTask) -> tuple[Tensor, Tensor]:
    """Scores in float64, some of them equal, and labels as a source gives them."""
    numbers = torch.Generator().manual_seed(0)
    scores = torch.randn(SAMPLES, *task.score_shape, generator=numbers, dtype=torch.float64).mul(2).round(decimals=1)
    if task.label_dtype == torch.int64:
        labels = torch.randint(0, WIDTH, (SAMPLES, *task.label_shape), generator=numbers)
    else:
        labels = torch.randint(0, 2, (SAMPLES, *task.label_shape), generator=numbers).float()
    return scores, labels


@each
def test_the_loss_is_torchs(row: Row) -> None:
    task = task_of(row)
    scores, labels = given(task)
    wanted = row.loss(scores, labels.to(torch.int64 if task.label_dtype == torch.int64 else torch.float64))
    torch.testing.assert_close(task.loss(scores, labels), wanted, rtol=1e-12, atol=0)
    torch.testing.assert_close(task.loss(scores, task.in_training(labels)), wanted, rtol=1e-12, atol=0)
    codes = task.encoded(labels, torch.float64)
    if not task.compares_labels:
        torch.testing.assert_close(task.loss(scores, codes), wanted, rtol=1e-12, atol=0)
    encoder = task.first_label_encoder(7).double()
    assert encoder(codes).shape == (SAMPLES, *task.score_shape[:-1], 7)


@each
def test_the_metric_is_scikit_learns_whatever_the_parts(row: Row) -> None:
    """Of scores of float64 and of float32, and of what is left of them where less is needed."""
    task = task_of(row)
    scores, labels = given(task)
    wanted = row.metric(scores.numpy(), labels.numpy())
    for parts in ([SAMPLES], [7, 1, 32]):
        tally = task.tally()
        for some, own in zip(scores.split(parts), labels.split(parts), strict=True):
            measured = task.measured(some, own)
            assert measured.shape == (len(some), *task.measured_shape)
            tally.take(measured, own)
        assert tally.samples == SAMPLES
        assert tally.value() == pytest.approx(wanted, rel=1e-9)
        assert list(tally.undefined) == []


@each
def test_chance_is_the_metric_of_equal_scores(row: Row) -> None:
    task = task_of(row)
    _, labels = given(task)
    wanted = row.metric(row.chance(labels.numpy()), labels.numpy())
    of_source = labels.flatten() if row.task == "next_token" else labels  # its source gives a text
    assert task.chance(of_source) == pytest.approx(wanted)


@each
def test_labels_of_a_source_are_read_and_checked(row: Row) -> None:
    task = task_of(row)
    _, labels = given(task)
    read = [task.read(label) for label in labels]
    assert all(label is not None for label in read)
    collated = task.collated(read)
    assert torch.equal(collated, labels) and collated.dtype == task.label_dtype
    assert task.fits(collated).tolist() == [True] * SAMPLES
    wrong = collated.clone()
    wrong[3] = math.nan if wrong.is_floating_point() else WIDTH
    assert task.fits(wrong).tolist() == [index != 3 for index in range(SAMPLES)]
    assert task.read("no label") is None


def test_ignored_positions_have_no_loss_no_code_and_no_share_in_the_metric() -> None:
    """Whatever part of the mini-batch a micro-batch has."""
    task = task_of(next(row for row in ROWS if row.task == "dense_classification"))
    scores, labels = given(task)
    labels[::3, 1:] = -100
    wanted = TOKENS(scores.flatten(0, 1), labels.flatten())
    in_training = task.in_training(labels)
    torch.testing.assert_close(task.loss(scores, in_training), wanted, rtol=1e-12, atol=0)
    of_parts = [task.loss(*both) for both in zip(scores.split(10), in_training.split(10), strict=True)]
    torch.testing.assert_close(torch.stack(of_parts).mean(), wanted, rtol=1e-12, atol=0)
    torch.testing.assert_close(task.loss(scores.movedim(2, 1), labels), wanted, rtol=1e-12, atol=0)
    codes = task.encoded(in_training, torch.float32)
    assert torch.equal(codes.isnan().all(2), labels == -100) and torch.equal(codes.nansum(2), (labels >= 0).float())
    tally = task.tally()
    tally.take(task.measured(scores, labels), labels)
    assert tally.value() == pytest.approx(float((scores.argmax(2) == labels)[labels >= 0].double().mean()))
