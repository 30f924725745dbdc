"""Checks across keys, each with its whole message and its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from alray.schedules.table import SCHEDULES, schedules_for
from alray.spec.checks import CHECKS
from alray.spec.loading import load_spec
from alray.spec.section import listed

LOCAL = [schedule.name for schedule in schedules_for(local_losses=True)]
PIPELINES = [schedule.name for schedule in SCHEDULES.values() if schedule.is_pipeline]

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
            f"choose {listed(['auto', *LOCAL])}",
        ),
        (
            "{kind: associated_learning}",
            "{kind: backpropagation}",
            "x.yaml:5: model.components[0].block: block `vgg` has batch normalisation: each of the 4 micro-batches "
            "would be normalised by itself, so the network is not the one that whole mini-batches train; "
            "set pipeline.micro_batch_norm to accept, or choose the schedule naive",
        ),
        (
            "{kind: associated_learning}\noptimizer: {kind: adam}\npipeline: {stages: 2}",
            "{kind: backpropagation}\npipeline: {schedule: streamed}",
            "x.yaml:8: pipeline.schedule: `streamed` is not a schedule for backpropagation; "
            f"choose {listed(['auto', *(schedule.name for schedule in schedules_for(local_losses=False))])}",
        ),
        (
            "{kind: associated_learning}\noptimizer: {kind: adam}\npipeline: {stages: 2}",
            "{kind: backpropagation}\noptimizer: {label_lr: 0.1}",
            "x.yaml:8: optimizer.label_lr: backpropagation has no label chain to train; leave it out",
        ),
        (
            "{kind: associated_learning}\noptimizer: {kind: adam}",
            "{kind: supervised_contrastive}\noptimizer: {label_lr: 0.1}",
            "x.yaml:8: optimizer.label_lr: supervised_contrastive has no label chain to train; leave it out",
        ),
        (
            "{kind: associated_learning}\noptimizer: {kind: adam}\npipeline: {stages: 2}",
            "{kind: supervised_contrastive}\npipeline: {schedule: 1f1b}",
            "x.yaml:8: pipeline.schedule: `1f1b` is not a schedule for supervised_contrastive; "
            f"choose {listed(['auto', *LOCAL])}",
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
            "{epochs: 1}\nresources: {stage_speed: [1.0, 0.5, 1.0]}",
            "x.yaml:11: resources.stage_speed: 3 speeds for 2 stages; give one per stage, or auto",
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
        ("{source: text_csv, train: a}", "test_accuracy", "there is no test set; set data.test"),
        (
            "{source: huggingface, path: a, test_split: null}",
            "test_accuracy",
            "there is no test set; set data.test_split",
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


def test_supervised_contrastive_may_keep_the_last_batch(small: str, write: Callable[[str], Path]) -> None:
    text = small.replace("{kind: associated_learning}", "{kind: supervised_contrastive}")
    load_spec(write(text.replace("source: digits", "source: digits, last_batch: keep")))


def test_four_halvings_of_sixteen_pixels_are_in_order(small: str, write: Callable[[str], Path]) -> None:
    text = small.replace("source: digits", "source: digits, image_size: 16").replace(
        "pool: true", "pool: true, repeat: 4"
    )
    load_spec(write(text))


PIPELINE = "{kind: associated_learning}\noptimizer: {kind: adam}\npipeline: {stages: 2}"


@pytest.mark.parametrize(
    ("pipeline", "messages"),
    [
        (
            "{stages: 2, schedule: single}",
            [
                "x.yaml:8: pipeline.stages: the schedule `single` runs on one stage, got 2; set pipeline.stages to 1, "
                f"or choose the schedule {listed(PIPELINES)}"
            ],
        ),
        (
            "{stages: 2, micro_batches: 6}",
            [
                "x.yaml:8: pipeline.micro_batches: a mini-batch of 64 samples cannot be cut into 6 equal micro-batches"
                "; use a divisor of 64, or another data.batch_size"
            ],
        ),
        (
            "{stages: 2, micro_batches: 1}",
            [
                "x.yaml:8: pipeline.micro_batches: `1f1b` needs at least as many micro-batches as stages, got 1 for 2; "
                "use 2 or more, or fewer stages"
            ],
        ),
        (
            "{stages: 2, schedule: naive, micro_batches: 2}",
            ["x.yaml:8: pipeline.micro_batches: `naive` does not cut mini-batches, got 2; leave it out"],
        ),
        (
            "{stages: 2, schedule: zero_bubble, micro_batches: 5}",
            [
                "x.yaml:8: pipeline.micro_batches: `zero_bubble` goes in rounds of one micro-batch per stage: 5 cannot "
                "be shared evenly by 2 rounds; use a multiple of the 2 stages, such as 4 or 6",
                "x.yaml:8: pipeline.micro_batches: a mini-batch of 64 samples cannot be cut into 5 equal micro-batches"
                "; use a divisor of 64, or another data.batch_size",
            ],
        ),
        (
            "{stages: 1, virtual_stages: 2, schedule: gpipe}",
            [
                "x.yaml:8: pipeline.stages: 1 stage with 2 virtual stages each, but the model has only 1 component; "
                "use fewer: a virtual stage holds at least one component",
                "x.yaml:8: pipeline.virtual_stages: `gpipe` has one virtual stage on each stage, got 2; "
                "leave it out, or choose a schedule with virtual stages",
            ],
        ),
        (
            "{schedule: interleaved_1f1b, stages: 1, virtual_stages: 1}",
            [
                "x.yaml:8: pipeline.virtual_stages: `interleaved_1f1b` has 2 to 256 virtual stages per stage, "
                "got 1; use a number in that range, or choose another schedule"
            ],
        ),
        (
            "{schedule: interleaved_1f1b, stages: 2, partition: [1, 1]}",
            [
                "x.yaml:8: pipeline.partition: [1, 1] has 2 entries, but there are 2 stages with 2 virtual stages each"
                "; give 4 entries, one per virtual stage"
            ],
        ),
    ],
)
def test_pipelines_of_backpropagation(
    small: str, complaints: Callable[..., list[str]], pipeline: str, messages: list[str]
) -> None:
    text = small.replace(PIPELINE, f"{{kind: backpropagation}}\npipeline: {pipeline[:-1]}, micro_batch_norm: accept}}")
    if "stages: 1, virtual_stages: 2" in pipeline:
        text = text.replace("    - {block: vgg, channels: [8], pool: true}\n", "")
        messages = [message.replace("yaml:8", "yaml:7") for message in messages]
    assert complaints(text) == messages


def test_pipelines_drop_the_last_batch(small: str, complaints: Callable[..., list[str]]) -> None:
    text = small.replace(PIPELINE, "{kind: backpropagation}\npipeline: {stages: 2, schedule: naive}")
    assert complaints(text.replace("source: digits", "source: digits, last_batch: keep")) == [
        "x.yaml:2: data.last_batch: the schedule `naive` needs mini-batches of one size, and an epoch's last one may "
        "be smaller; leave it at drop, or choose the schedule single"
    ]


def test_the_default_number_of_micro_batches_is_told_as_such(small: str, complaints: Callable[..., list[str]]) -> None:
    text = small.replace(PIPELINE, "{kind: backpropagation}\npipeline: {stages: 2, micro_batch_norm: accept}")
    (found,) = complaints(text.replace("source: digits", "source: digits, batch_size: 50"))
    assert "a mini-batch of 50 samples cannot be cut into 4 equal micro-batches (2 per stage, the default);" in found


@pytest.mark.parametrize(
    ("pipeline", "schedule", "stages", "micro_batches", "virtual_stages"),
    [
        ("{}", "single", 1, 1, 1),
        ("{stages: 2}", "1f1b", 2, 4, 1),
        ("{stages: 2, schedule: naive}", "naive", 2, 1, 1),
        ("{stages: 2, schedule: gpipe, micro_batches: 8}", "gpipe", 2, 8, 1),
        ("{schedule: interleaved_1f1b}", "interleaved_1f1b", 1, 2, 2),
        ("{schedule: interleaved_1f1b, partition: [1, 1]}", "interleaved_1f1b", 1, 2, 2),
        ("{schedule: zero_bubble, virtual_stages: 2, partition: [1, 1]}", "zero_bubble", 1, 2, 2),
        ("{schedule: zero_bubble, partition: [1, 1]}", "zero_bubble", 2, 4, 1),
    ],
)
def test_what_is_left_out_of_a_pipeline(
    small: str,
    write: Callable[[str], Path],
    pipeline: str,
    schedule: str,
    stages: int,
    micro_batches: int,
    virtual_stages: int,
) -> None:
    keys = ", ".join(part for part in (pipeline[1:-1], "micro_batch_norm: accept") if part)
    spec = load_spec(write(small.replace(PIPELINE, f"{{kind: backpropagation}}\npipeline: {{{keys}}}"))).spec
    assert (spec.schedule, spec.pipeline.stages) == (schedule, stages)
    assert (spec.micro_batches, spec.virtual_stages) == (micro_batches, virtual_stages)


def test_micro_batches_of_local_losses(small: str, complaints: Callable[..., list[str]]) -> None:
    assert complaints(small.replace("{stages: 2}", "{stages: 2, micro_batches: 2}")) == [
        "x.yaml:9: pipeline.micro_batches: `streamed` does not cut mini-batches, got 2; leave it out"
    ]


def test_all_findings_are_told_at_once(small: str, complaints: Callable[..., list[str]]) -> None:
    text = small.replace("{stages: 2}", "{stages: 3, schedule: single}")
    assert [line.split(": ")[1] for line in complaints(text)] == ["pipeline.stages", "pipeline.schedule"]


def test_each_check_says_what_it_checks() -> None:
    assert all(check.__doc__ for check in CHECKS)
