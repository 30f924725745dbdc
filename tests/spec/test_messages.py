"""Every way a value can be wrong, with the whole message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from alray.schedules.table import SCHEDULES
from alray.spec.messages import problems_of
from alray.spec.models import Replicas, Spec
from alray.spec.places import Places
from alray.spec.section import listed

Complaints = Callable[..., list[str]]


def changed(small: str, old: str, new: str) -> str:
    assert small.count(old) == 1
    return small.replace(old, new)


BLOCKS = "vgg, stem, residual, embedding, lstm, transformer, linear, mlp"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[8], pool", "[8], pol", "x.yaml:6: model.components[1].pol: unknown key; did you mean `pool`?"),
        (
            "channels: [8]",
            "chanels: [8]",
            "x.yaml:6: model.components[1].chanels: unknown key; did you mean `channels`?",
        ),
        (
            "{epochs: 1}",
            "{epochs: 1, foo: 2}",
            "x.yaml:10: run.foo: unknown key; known: epochs, steps, samples, checkpoint, evaluate_every, "
            "max_failures, stop_at, deterministic, precision",
        ),
        (
            "block: vgg, channels: [8]",
            "block: vg, channels: [8]",
            "x.yaml:6: model.components[1].block: unknown block `vg`; did you mean `vgg`? known: "
            f"{BLOCKS}, and classes of your own as python:package.module.Class",
        ),
        (
            "block: vgg, channels: [8]",
            "channels: [8]",
            f"x.yaml:6: model.components[1].block: this key is required; known: {BLOCKS}, python:package.module.Class",
        ),
        (
            "block: vgg, channels: [8]",
            "block: 7, channels: [8]",
            "x.yaml:6: model.components[1].block: expected the name of a block, got 7; "
            f"known: {BLOCKS}, python:package.module.Class",
        ),
        (
            "block: vgg, channels: [8], pool: true",
            "block: 'python:Gated'",
            "x.yaml:6: model.components[1].block: `python:Gated` names no module: the form is "
            "python:package.module.Class",
        ),
        (
            "block: vgg, channels: [8], pool: true",
            "block: 'python:a.B', x: [.nan]",
            "x.yaml:6: model.components[1].x: expected a finite number, got nan",
        ),
        (
            "source: digits",
            "source: digitz",
            "x.yaml:2: data.source: unknown source `digitz`; did you mean `digits`? known: digits, synthetic, "
            "image_folder, tiny_imagenet, torchvision, text_csv, text_folder, docstrings, huggingface, "
            "and classes of your own as python:package.module.Class",
        ),
        (
            "associated_learning",
            "hebbian",
            "x.yaml:7: method.kind: unknown kind `hebbian`; "
            "known: associated_learning, backpropagation, supervised_contrastive",
        ),
        (
            "{kind: associated_learning}",
            "backpropagation",
            "x.yaml:7: method: expected a section, got the text `backpropagation`; "
            "write such as {kind: associated_learning}",
        ),
        (
            "{kind: adam}",
            "{kind: sgd}",
            "x.yaml:8: optimizer.lr: this key is required; it is: learning rate",
        ),
        ("{kind: adam}", "{lr: abc}", "x.yaml:8: optimizer.lr: expected a number, got the text `abc`"),
        ("{kind: adam}", "{lr: '3'}", "x.yaml:8: optimizer.lr: expected a number, got the text `3`"),
        ("{kind: adam}", "{lr: .nan}", "x.yaml:8: optimizer.lr: expected a finite number, got nan"),
        ("{kind: adam}", "{lr: 0}", "x.yaml:8: optimizer.lr: must be greater than 0, got 0"),
        ("{kind: adam}", "{weight_decay: -1}", "x.yaml:8: optimizer.weight_decay: must be at least 0, got -1"),
        ("{kind: adam}", "{betas: [0.9, 1]}", "x.yaml:8: optimizer.betas[1]: must be less than 1, got 1"),
        (
            "{kind: adam}",
            "{betas: [0.9]}",
            "x.yaml:8: optimizer.betas: entry 1 is missing; it is: decay rates of the two running means",
        ),
        ("{kind: adam}", "{betas: [0, 0, 0]}", "x.yaml:8: optimizer.betas: expected at most 2 entries, got 3"),
        ("{kind: adam}", "{betas: 1}", "x.yaml:8: optimizer.betas: expected a list, got 1"),
        ("{stages: 2}", "{stages: abc}", "x.yaml:9: pipeline.stages: expected an integer, got the text `abc`"),
        ("{stages: 2}", "{stages: 2.0}", "x.yaml:9: pipeline.stages: expected an integer, got 2.0"),
        ("{stages: 2}", "{stages: true}", "x.yaml:9: pipeline.stages: expected an integer, got true"),
        ("{stages: 2}", "{stages: [2]}", "x.yaml:9: pipeline.stages: expected an integer, got a list"),
        (
            "{stages: 2}",
            "{schedule: streamd}",
            f"x.yaml:9: pipeline.schedule: expected {listed(['auto', *SCHEDULES])}, "
            "got the text `streamd`; did you mean `streamed`?",
        ),
        (
            "{stages: 2}",
            "{partition: even}",
            "x.yaml:9: pipeline.partition: expected `auto`, `uniform`, `parameters` or a list, got the text `even`; "
            "a list holds the number of components of each stage, such as [2, 2]",
        ),
        ("{stages: 2}", "{partition: [2, 0]}", "x.yaml:9: pipeline.partition[1]: must be at least 1, got 0"),
        ("{stages: 2}", "{partition: []}", "x.yaml:9: pipeline.partition: expected at least 1 entry, got 0"),
        (
            "{stages: 2}",
            "3",
            "x.yaml:9: pipeline: expected a section, got 3; its keys: schedule, stages, partition, in_flight, "
            "micro_batches, virtual_stages, micro_batch_norm, costs",
        ),
        (
            "name: small",
            "name: a/b",
            "x.yaml:1: name: the text `a/b` cannot name a run folder; "
            "use up to 100 letters, digits, `.`, `_` and `-`, a letter or digit first",
        ),
        ("name: small", "name: 7", "x.yaml:1: name: expected a text, got 7"),
        (
            "name: small",
            "seed: 1",
            "x.yaml: name: this key is required; it is: name of the run: its folder is `runs/<name>-<time>`",
        ),
        ("name: small", "name: a\nversion: 2", "x.yaml:2: version: expected `1`, got 2"),
        (
            "name: small",
            "name: a\nversion: 9223372036854775808",
            "x.yaml:2: version: expected an integer below 2^63, got 9223372036854775808",
        ),
        ("name: small", "name: a\nseed: -1", "x.yaml:2: seed: must be at least 0, got -1"),
        (
            "source: digits",
            "source: torchvision, dataset: MNIST, root: 7",
            "x.yaml:2: data.root: expected a path, got 7",
        ),
        (
            "source: digits",
            "source: torchvision, dataset: MNIST, root: ''",
            "x.yaml:2: data.root: a path is neither empty nor holds NUL characters",
        ),
        (
            "source: digits",
            "source: torchvision, dataset: MNIST, root: x, download: 1",
            "x.yaml:2: data.download: expected true or false, got 1",
        ),
        (
            "source: digits",
            "source: digits, validation_fraction: 1",
            "x.yaml:2: data.validation_fraction: must be less than 1, got 1",
        ),
        (
            "source: digits",
            "source: digits, train_fraction: 1.5",
            "x.yaml:2: data.train_fraction: must be at most 1, got 1.5",
        ),
        (
            "{epochs: 1}",
            "{}",
            "x.yaml:10: run: how long to train is not said; add `epochs`, `steps` or `samples`",
        ),
        (
            "{epochs: 1}",
            "{epochs: 1, steps: 2}",
            "x.yaml:10: run: `epochs` and `steps` each say how long to train; keep one of them",
        ),
        (
            "{epochs: 1}",
            "{epochs: 1, evaluate_every: 3 weeks}",
            "x.yaml:10: run.evaluate_every: expected a duration, got the text `3 weeks`; "
            "write `N steps`, `N epochs` or `N s`",
        ),
        (
            "{epochs: 1}",
            "{epochs: 1, evaluate_every: 5}",
            "x.yaml:10: run.evaluate_every: expected a duration, got 5; write `N steps`, `N epochs` or `N s`",
        ),
        (
            "{epochs: 1}",
            "{epochs: 1, stop_at: {metric: test_accuracy}}",
            "x.yaml:10: run.stop_at: exactly one of `above` and `below` is needed; "
            "add `above: 0.95`, say, or remove one",
        ),
        (
            "{epochs: 1}",
            "{epochs: 1}\nresources: {device: gpu}",
            "x.yaml:11: resources.device: expected `auto`, `cpu` or `cuda`, got the text `gpu`",
        ),
        (
            "{epochs: 1}",
            "{epochs: 1}\nresources: {per_stage: 2}",
            "x.yaml:11: resources.per_stage: expected a section or a list of them, got 2; "
            "write such as {CPU: 1} or {CPU: 2, GPU: 1}",
        ),
        (
            "{epochs: 1}",
            "{epochs: 1}\nresources: {labels: 2}",
            "x.yaml:11: resources.labels: expected a section, got 2",
        ),
        (
            "kind: associated_learning",
            "kind: backpropagation, head: big",
            "x.yaml:7: method.head: expected `auto` or a section, got the text `big`; "
            "a section is such as {pool: null, hidden: 2500}",
        ),
        *(
            ("kind: associated_learning", f"kind: supervised_contrastive, {old}", f"x.yaml:7: method.{message}")
            for old, message in (
                (
                    "debiased: true",
                    "debiased: expected false or a class prior, got true; "
                    "a class prior is the share of one class, such as 0.1 where there are ten of equal size",
                ),
                ("debiased: 0", "debiased: must be greater than 0, got 0"),
                ("debiased: 1", "debiased: must be less than 1, got 1"),
                ("debiased: .nan", "debiased: expected a finite number, got nan"),
                ("temperature: 0", "temperature: must be greater than 0, got 0"),
                ("projection_dim: 0", "projection_dim: must be at least 1, got 0"),
            )
        ),
    ],
)
def test_one_wrong_value(small: str, complaints: Complaints, old: str, new: str, message: str) -> None:
    assert complaints(changed(small, old, new)) == [message]


def test_everything_is_told_at_once_in_the_order_of_the_file(complaints: Complaints) -> None:
    text = """\
name: two words
model:
  components:
    - {block: vgg, channels: [4, x]}
    - 5
optimizer: {kind: adamm}
pipeline: {in_flight: 0}
run: {epochs: none}
"""
    assert complaints(text) == [
        "x.yaml: data: this key is required; it is: where samples come from, and how they become mini-batches",
        "x.yaml:1: name: the text `two words` cannot name a run folder; "
        "use up to 100 letters, digits, `.`, `_` and `-`, a letter or digit first",
        "x.yaml:4: model.components[0].channels[1]: expected an integer, got the text `x`",
        "x.yaml:5: model.components[1]: expected a section, got 5; write such as {block: vgg}",
        "x.yaml:6: optimizer.kind: unknown kind `adamm`; did you mean `adam`? known: sgd, adam, adamw, lars",
        "x.yaml:7: pipeline.in_flight: must be at least 1, got 0",
        "x.yaml:8: run.epochs: expected an integer, got the text `none`",
    ]


PATHS: list[tuple[str | int, ...]] = [
    *[(key,) for key in Spec.model_fields],
    ("data", "source"), ("data", "batch_size"), ("data", "shape"), ("data", "image_size"), ("data", "root"),
    ("model", "components"), ("model", "components", 0), ("model", "components", 0, "block"),
    ("model", "components", 0, "channels"), ("model", "components", 0, "repeat"),
    ("method", "kind"), ("method", "head"), ("method", "debiased"), ("method", "bridge"), ("method", "bridge", "pool"),
    ("optimizer", "kind"), ("optimizer", "lr"), ("optimizer", "betas"), ("lr_schedule", "kind"),
    ("pipeline", "partition"), ("pipeline", "costs"), ("pipeline", "stages"),
    ("resources", "per_stage"), ("resources", "labels"), ("resources", "device"),
    *[("replicas", key) for key in Replicas.model_fields], ("replicas", "compression", "kind"),
    ("run", "checkpoint"), ("run", "stop_at"), ("run", "epochs"), ("run", "precision"),
]  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers().map(lambda number: number * 10**90)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(
        [
            "python:a.B",
            "python:",
            "vgg",
            "sgd",
            "cosine",
            "backpropagation",
            "supervised_contrastive",
            "synthetic",
            "torchvision",
            "powersgd",
            "random",
            "8 steps",
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["kind", "block", "every", "metric", "CPU", "forward_s", "average_every", "epochs", "x", ""]
            ),
            inner,
        )
    ),
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATHS), VALUES), min_size=1, max_size=3))
def test_no_value_is_without_plain_words(changes: list[tuple[tuple[str | int, ...], Any]]) -> None:
    document: Any = {
        "name": "small",
        "data": {"source": "digits"},
        "model": {"components": [{"block": "vgg", "channels": [4]}]},
        "method": {"bridge": {}},
        **{key: {} for key in ("optimizer", "lr_schedule", "pipeline", "resources", "replicas")},
        "run": {"epochs": 1},
    }
    for path, value in changes:
        holder = document
        for part in path[:-1]:
            holder = holder[part] if isinstance(holder, dict) and part in holder else holder
            holder = (
                holder[part] if isinstance(holder, list) and isinstance(part, int) and len(holder) > part else holder
            )
        if isinstance(holder, dict) and isinstance(path[-1], str):
            holder[path[-1]] = value
    try:
        Spec.model_validate(document)
    except ValidationError as error:
        told = [str(problem) for problem in problems_of(error.errors(include_url=False), Places("x.yaml"))]
        assert told
        for jargon in ("Input", "should be", " tag", "union", "tuple", "dict", "pydantic", "NoneType"):
            assert not any(jargon in line.split("`")[0] for line in told)
