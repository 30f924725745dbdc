"""Checks across keys, each with its whole message and its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from alray.spec.checks import CHECKS
from alray.spec.loading import load_spec

COST = "{forward_s: 1, backward_s: 1, update_s: 0}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "{stages: 2}",
            "{partition: [1, 3]}",
            "x.yaml:9: pipeline.partition: [1, 3] covers 4 components, but the model has 2; "
            "give the number of components of each stage, with `repeat` counted",
        ),
        (
            "{stages: 2}",
            "{partition: [1]}",
            "x.yaml:9: pipeline.partition: [1] covers 1 component, but the model has 2; "
            "give the number of components of each stage, with `repeat` counted",
        ),
        (
            "{stages: 2}",
            "{stages: 1, partition: [1, 1]}",
            "x.yaml:9: pipeline.partition: [1, 1] is for 2 stages, but `stages` is 1; "
            "leave `stages` out, or give one entry per stage",
        ),
        (
            "{stages: 2}",
            "{stages: 3}",
            "x.yaml:9: pipeline.stages: 3 stages, but the model has only 2 components; "
            "give at most 2: a stage holds at least one component",
        ),
        (
            "{stages: 2}",
            "{schedule: single}",
            "x.yaml:9: pipeline.schedule: `single` is not a schedule for associated_learning; "
            "choose `auto`, `streamed`, `sequential`, `parallel_backward` or `overlapped`",
        ),
        (
            "{kind: associated_learning}",
            "{kind: backpropagation}",
            "x.yaml:9: pipeline.stages: backpropagation runs on one stage in this version, got 2; "
            "set pipeline.stages to 1",
        ),
        (
            "{kind: associated_learning}\noptimizer: {kind: adam}\npipeline: {stages: 2}",
            "{kind: backpropagation}\npipeline: {schedule: streamed}",
            "x.yaml:8: pipeline.schedule: `streamed` is not a schedule for backpropagation; choose `auto` or `single`",
        ),
        (
            "{kind: associated_learning}\noptimizer: {kind: adam}\npipeline: {stages: 2}",
            "{kind: backpropagation}\noptimizer: {label_lr: 0.1}",
            "x.yaml:8: optimizer.label_lr: backpropagation has no label chain to train; leave it out",
        ),
        (
            "{kind: adam}",
            "{kind: sgd, lr: 1, nesterov: true}",
            "x.yaml:8: optimizer.nesterov: it needs momentum; set optimizer.momentum, to 0.9 say",
        ),
        (
            "{stages: 2}",
            f"{{costs: [{COST}]}}",
            "x.yaml:9: pipeline.costs: 1 cost, but the model has 2 components; "
            "give one per component, with `repeat` counted",
        ),
        (
            "{epochs: 1}",
            "{epochs: 1}\nresources: {per_stage: [{CPU: 1}]}",
            "x.yaml:11: resources.per_stage: 1 entry for 2 stages; give one per stage, or one section for all of them",
        ),
        (
            "{epochs: 1}",
            "{epochs: 1}\nresources: {device: cuda, per_stage: [{GPU: 1}, {CPU: 1}]}",
            "x.yaml:11: resources.device: stage 1 is to compute on cuda, but asks for no GPU; "
            "add GPU: 1 to resources.per_stage, or choose cpu",
        ),
        (
            "{epochs: 1}",
            "{epochs: 1, evaluate_every: null, stop_at: {metric: test_accuracy, above: 0.9}}",
            "x.yaml:10: run.stop_at: there are no evaluations before the end; set run.evaluate_every",
        ),
        (
            "channels: [8], pool: true",
            "channels: [8], pool: true, repeat: 4",
            "x.yaml:6: model.components[1].pool: the image is down to 1 x 1 before this pool; "
            "remove a pool, or set data.image_size higher",
        ),
    ],
)
def test_findings(small: str, complaints: Callable[..., list[str]], old: str, new: str, message: str) -> None:
    assert small.count(old) == 1
    assert complaints(small.replace(old, new)) == [message]


@pytest.mark.parametrize(
    ("data", "metric", "message"),
    [
        (
            "{source: digits, validation_fraction: 0}",
            "validation_accuracy",
            "there is no validation set; set data.validation_fraction, to 0.1 say",
        ),
        (
            "{source: image_folder, train: a, image_size: 8}",
            "test_accuracy",
            "there is no test set; set data.test",
        ),
    ],
)
def test_a_stop_metric_that_is_not_measured(
    small: str, complaints: Callable[..., list[str]], data: str, metric: str, message: str
) -> None:
    text = small.replace("{source: digits}", data)
    text = text.replace("{epochs: 1}", f"{{epochs: 1, stop_at: {{metric: {metric}, above: 0.9}}}}")
    assert complaints(text) == [f"x.yaml:10: run.stop_at.metric: {message}"]


@pytest.mark.parametrize(
    "pipeline",
    [
        "{stages: 2, partition: [1, 1]}",
        "{partition: [2]}",
        "{schedule: overlapped}",
        f"{{stages: 2, costs: [{COST}, {COST}]}}",
    ],
)
def test_what_is_in_order(small: str, write: Callable[[str], Path], pipeline: str) -> None:
    load_spec(write(small.replace("{stages: 2}", pipeline)))


def test_four_halvings_of_sixteen_pixels_are_in_order(small: str, write: Callable[[str], Path]) -> None:
    text = small.replace("source: digits", "source: digits, image_size: 16").replace(
        "pool: true", "pool: true, repeat: 4"
    )
    load_spec(write(text))


def test_all_findings_are_told_at_once(small: str, complaints: Callable[..., list[str]]) -> None:
    text = small.replace("{stages: 2}", "{stages: 3, schedule: single}")
    assert [line.split(": ")[1] for line in complaints(text)] == ["pipeline.stages", "pipeline.schedule"]


def test_each_check_says_what_it_checks() -> None:
    assert all(check.__doc__ for check in CHECKS)
