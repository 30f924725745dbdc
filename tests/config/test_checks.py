"""Checks across keys: what they let pass. What they refuse is in `bad_specs.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from alray.config.loading.load import load_spec

COST = "{forward_s: 1, backward_s: 1, update_s: 0}"


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


@pytest.mark.parametrize(("stages", "virtual_stages"), [(1, 6), (2, 3), (3, 2), (6, 1)])
def test_components_in_turns(small: str, write: Callable[[str], Path], stages: int, virtual_stages: int) -> None:
    text = small.replace("channels: [4]", "channels: [4], repeat: 5")
    spec = load_spec(write(text), [f"pipeline={{stages: {stages}, partition: cyclic}}"]).spec
    assert (spec.model.num_components, spec.virtual_stages) == (6, virtual_stages)
