"""All wrong values of a spec are told at once, each of them once. Checks across keys run when all values are right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from alray.config.loading.load import load_spec
from alray.config.loading.values import MOST_ERRORS
from alray.config.sections.blocks import OwnBlock
from alray.parts.compressions.fp16.keys import Fp16
from alray.parts.methods.backpropagation import Backpropagation
from alray.parts.optimizers.adam import Adam
from alray.parts.rates.cosine import Cosine
from alray.parts.sources.digits.keys import Digits

from .conftest import SMALL

Complaints = Callable[..., list[str]]


def changed(*changes: tuple[str, str]) -> str:
    text = SMALL
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def places(lines: list[str]) -> list[str]:
    """Line and key of each message."""
    return [" ".join(line.split(": ")[:2]).removeprefix("x.yaml:") for line in lines]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            [("source: digits", "source: cub200, foo: 1"), ("epochs: 1", "epochs: 0")],
            ["2 data.source", "10 run.epochs"],
            id="a kind that does not exist, and it is not clear which one was meant",
        ),
        pytest.param(
            [("source: digits", "source: digitz, batch_size: -3, shape: 3")],
            ["2 data.source", "2 data.batch_size", "2 data.shape"],
            id="a misspelt kind, and keys that are wrong in the one that was meant",
        ),
        pytest.param(
            [("stages: 2", "stages: 9, in_flight: 0"), ("epochs: 1", "steps: 2, epochs: 1, precision: double")],
            ["9 pipeline.in_flight", "10 run.precision"],
            id="values of several sections; checks across keys wait until they are right",
        ),
        pytest.param([("[8]", "[x]")], ["6 model.components[1].channels[0]"], id="a list is not too short as well"),
        pytest.param([("name: small", "nam: small")], ["1 nam"], id="a misspelt key is not missing as well"),
        pytest.param(
            [("stages: 2", "partition: [1, x]")],
            ["9 pipeline.partition[1]"],
            id="nor is a default wrong that depends on a wrong value",
        ),
        pytest.param(
            [("stages: 2", "stages: 2, stages: 3, in_flight: 0"), ("epochs: 1", "epochs: 0")],
            ["9 pipeline.stages", "9 pipeline.in_flight", "10 run.epochs"],
            id="beside a key that is there twice",
        ),
        pytest.param(
            [("{kind: adam}", "adagrad"), ("method: {kind: associated_learning}", "method: bp"), ("stages: 2", "")],
            ["7 method.kind", "8 optimizer.kind"],
            id="bare kinds that do not exist",
        ),
    ],
)  # fmt: skip
def test_all_at_once(complaints: Complaints, changes: list[tuple[str, str]], expected: list[str]) -> None:
    assert places(complaints(changed(*changes))) == expected


def test_a_hundred_errors_are_enough(complaints: Complaints) -> None:
    wrong = ", ".join(f"x{number}: 1" for number in range(1_000))
    assert len(complaints(changed(("stages: 2", wrong)))) == MOST_ERRORS


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (("channels: [4]", "channels: 128"), "write `[128]`"),
        (("pool: true", "pool: yes"), "write `true`"),
        (("stages: 2", "stages: '2'"), "write `2` without quotes"),
        (("stages: 2", "stages: 0"), "write a number that is at least 1, or leave the key out"),
        (("channels: [4]", "channels: '4, 8'"), "write `[4, 8]`"),
        (("{kind: adam}", "{kind: adam, betas: 1}"), "write a list: each entry after a `-`"),
        (("{kind: adam}", "sdg"), "did you mean `sgd`?"),
        (("{kind: adam}", "{lerning_rate: 0.1}"), "did you mean `lr`?"),
        (("epochs: 1", "epochs: 1, checkpoint: {every: none}"), "write `N steps`"),
        (("epochs: 1", "epochs: 1, evaluate_every: none"), "write `null`"),
        (("epochs: 1", "epochs: 1, checkpoint: false"), "write `null`"),
        (("{kind: associated_learning}", "al"), "did you mean `associated_learning`?"),
        (("{kind: associated_learning}", "BP"), "did you mean `backpropagation`?"),
        (("{kind: associated_learning}", "{kind: scpl}"), "did you mean `supervised_contrastive`?"),
        (("{kind: associated_learning}", "dgl"), "did you mean `decoupled_greedy`?"),
        (("epochs: 1", "epochs: 1, trackers: [wandb]"), "pip install ./plugins/wandb"),
        (("epochs: 1", "epochs: 1, trackers: [tensorboard]"), "pip install tensorboard"),
        (("name: small", "name: 7"), 'write `"7"`'),
        (("name: small", "name: 007 # x"), 'write `"007"`'),
        (("name: small", "name: &x 007"), 'write `"7"`'),
    ],
)
def test_the_mend_says_what_to_write(complaints: Complaints, change: tuple[str, str], hint: str) -> None:
    assert any(hint in line.partition("; ")[2] for line in complaints(changed(change)))


def test_a_bare_kind_is_a_section_in_a_file_as_in_an_override(write: Callable[[str], Path]) -> None:
    text = changed(
        ("{source: digits}", "digits"),
        ("{block: vgg, channels: [4]}", "python:own.Block"),
        ("{kind: associated_learning}", "backpropagation"),
        ("{kind: adam}", "adam"),
        ("{stages: 2}", "{}\nlr_schedule: cosine\nreplicas: {compression: fp16}"),
    )
    spec = load_spec(write(text), ["method.label_smoothing=0.5"]).spec
    assert (spec.data, spec.method) == (
        Digits(source="digits"),
        Backpropagation(kind="backpropagation", label_smoothing=0.5),
    )
    assert (spec.optimizer, spec.lr_schedule) == (Adam(), Cosine(kind="cosine"))
    assert spec.model.components[0] == OwnBlock(block="python:own.Block")
    assert spec.replicas.compression == Fp16(kind="fp16")
    assert load_spec(write(text), ["replicas={compression: bf16}"]).spec.replicas.compression.kind == "bf16"
