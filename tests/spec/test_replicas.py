"""`replicas`, and what large mini-batches need: fields, defaults, checks, each with its whole message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alray.spec import models
from alray.spec.checks import CHECKS
from alray.spec.loading import dump_spec, load_spec
from alray.spec.models import Replicas, Spec
from alray.spec.places import key_text
from alray.spec.replica_checks import REPLICA_CHECKS
from alray.spec.schema import json_schema
from alray.spec.yaml_text import read_yaml

COMPRESSIONS = ["none", "fp16", "bf16", "powersgd", "top_k"]
BACKPROPAGATION: dict[str, Any] = {"method": {"kind": "backpropagation"}}
GPIPE: dict[str, Any] = {**BACKPROPAGATION, "pipeline": {"schedule": "gpipe", "stages": 2, "micro_batches": 4}}


def spec_with(batch_size: int = 64, **sections: Any) -> Spec:
    return Spec.model_validate(
        {
            "name": "small",
            "data": {"source": "digits", "batch_size": batch_size},
            "model": {"components": [{"block": "linear", "width": 4}, {"block": "linear", "width": 4}]},
            "run": {"epochs": 1},
            **sections,
        }
    )


def replicas(**values: Any) -> Replicas:
    return spec_with(replicas=values).replicas


def found(spec: Spec) -> list[str]:
    """What all checks find."""
    return [f"{key_text(path)}: {message}; {mend}" for check in CHECKS for path, message, mend in check(spec)]


def test_the_defaults() -> None:
    made = replicas()
    assert (made.count, made.all_reduce, made.balance, made.engine) == (1, "backend", "fixed", "graph")
    assert (made.synchronise, made.sync_batch_norm) == ("every_step", False)
    assert made.disturbance is None and made.shares is None and made.compression == models.NoCompression()
    assert (spec_with().optimizer.accumulate, spec_with().lr_schedule.scale_with_batch) == (1, "none")


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_a_bare_name_is_that_compression_with_its_defaults(kind: str) -> None:
    assert replicas(compression=kind) == replicas(compression={"kind": kind})
    assert replicas(compression=kind).compression.kind == kind


def test_compressions_have_values_of_their_own() -> None:
    assert replicas(compression="powersgd").compression == models.PowerSgd(kind="powersgd", rank=2, start_iteration=0)
    assert replicas(compression="top_k").compression == models.TopK(kind="top_k", fraction=0.01)
    given_ones = replicas(compression={"kind": "powersgd", "rank": 4, "start_iteration": 10}).compression
    assert given_ones == models.PowerSgd(kind="powersgd", rank=4, start_iteration=10)


def test_model_averaging_counts_mini_batches() -> None:
    averaged = replicas(synchronise={"average_every": "8 steps"}).synchronise
    assert isinstance(averaged, models.AverageEvery) and averaged.num_steps == 8


def test_disturbances() -> None:
    fixed = replicas(disturbance={"workers": [1], "factor": 3.0, "epochs": [2, 6]}).disturbance
    assert fixed == models.FixedDisturbance(workers=(1,), factor=3.0, epochs=(2, 6))
    luck = replicas(disturbance={"kind": "random", "factor": 3}).disturbance
    assert isinstance(luck, models.RandomDisturbance)
    assert (luck.chance, luck.least_epochs, luck.most_epochs) == (0.1, 4, 20)


def test_large_batches() -> None:
    spec = spec_with(
        optimizer={"kind": "lars", "lr": 0.1, "accumulate": 4},
        lr_schedule={"warmup_epochs": 5, "scale_with_batch": "linear", "reference_batch_size": 256},
    )
    lars, schedule = spec.optimizer, spec.lr_schedule
    assert isinstance(lars, models.Lars)
    assert (lars.momentum, lars.trust_coefficient, lars.eps, lars.accumulate) == (0.9, 1e-3, 1e-8, 4)
    assert (schedule.kind, schedule.warmup_from, schedule.reference_batch_size) == ("constant", "zero", 256)


EVERYTHING = """\
replicas:
  count: 1
  all_reduce: ring
  compression: {kind: powersgd, rank: 2}
  balance: dynamic_batch_size
  synchronise: every_step
"""


@pytest.mark.parametrize(
    "text",
    [
        EVERYTHING,
        "replicas: {compression: bf16, shares: [64]}",
        "replicas: {synchronise: {average_every: 8 steps}}",
        "lr_schedule: {kind: cosine, warmup_epochs: 5, scale_with_batch: linear, reference_batch_size: 256}",
    ],
)
def test_what_is_dumped_is_the_same_spec_and_an_editor_takes_both(
    small: str, write: Callable[[str], Path], text: str
) -> None:
    loaded = load_spec(write(small + text)).spec
    for written in (small + text, dump_spec(loaded)):
        document, _ = read_yaml(written, "x.yaml")
        jsonschema.Draft202012Validator(json_schema()).validate(document)
    assert load_spec(write(dump_spec(loaded))).spec == loaded


def test_overrides_of_compression(small: str, write: Callable[[str], Path]) -> None:
    def compression(text: str, *overrides: str) -> object:
        return load_spec(write(small + text), overrides).spec.replicas.compression

    rank_four = models.PowerSgd(kind="powersgd", rank=4)
    assert compression("", "replicas.compression={kind: powersgd, rank: 4}") == rank_four
    assert compression("", "replicas.compression=powersgd", "replicas.compression.rank=4") == rank_four
    assert compression("replicas: {compression: {kind: powersgd, rank: 4}}", "replicas.compression.kind=fp16") == (
        models.Fp16(kind="fp16")
    )


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("count: 0", "count: must be at least 1, got 0"),
        (
            "all_reduce: rings",
            "all_reduce: expected `backend`, `ring`, `halving_doubling`, `tree` or `star`, got the text `rings`; "
            "did you mean `ring`?",
        ),
        (
            "compression: fp17",
            "compression.kind: unknown kind `fp17`; did you mean `fp16`? known: none, fp16, bf16, powersgd, top_k",
        ),
        ("compression: 7", "compression: expected a section, got 7; write such as {kind: none}"),
        ("compression: {kind: powersgd, rank: 0}", "compression.rank: must be at least 1, got 0"),
        ("compression: {kind: top_k, fraction: 0}", "compression.fraction: must be greater than 0, got 0"),
        (
            "compression: {kind: fp16, rank: 2}",
            "compression.rank: unknown key; known: kind",
        ),
        (
            "synchronise: never",
            "synchronise: expected `every_step` or a section, got the text `never`; "
            "a section is such as {average_every: 8 steps}",
        ),
        (
            "synchronise: {average_every: 1 epoch}",
            "synchronise.average_every: expected a number of mini-batches, got `1 epoch`; write `N steps`",
        ),
        (
            "synchronise: {average_every: 8}",
            "synchronise.average_every: expected a duration, got 8; write `N steps`, `N epochs` or `N s`",
        ),
        (
            "disturbance: {workers: [0], factor: 0.5, epochs: [1, 2]}",
            "disturbance.factor: must be at least 1, got 0.5",
        ),
        (
            "disturbance: {workers: [0], factor: 2, epochs: [3, 2]}",
            "disturbance: it would begin in epoch 3 and end in epoch 2; name the first epoch first",
        ),
        ("disturbance: {workers: [0], factor: 2, epochs: [0, 2]}", "disturbance.epochs[0]: must be at least 1, got 0"),
        (
            "disturbance: {kind: random, factor: 2, least_epochs: 30}",
            "disturbance: least_epochs is 30 and most_epochs 20; set most_epochs to at least least_epochs",
        ),
        ("shares: [32, 0, 32]", "shares[1]: must be at least 1, got 0"),
    ],
)
def test_one_wrong_value(small: str, complaints: Callable[..., list[str]], written: str, message: str) -> None:
    assert complaints(f"{small}replicas: {{{written}}}") == [f"x.yaml:11: replicas.{message}"]


@pytest.mark.parametrize(
    ("sections", "messages"),
    [
        (
            {"batch_size": 4, "replicas": {"count": 5}},
            [
                "replicas.count: 5 replicas cannot share a mini-batch of 4 samples; "
                "use at most 4, or a larger data.batch_size"
            ],
        ),
        (
            {"replicas": {"count": 3, "shares": [32, 31]}},
            [
                "replicas.shares: 2 entries for 3 replicas; give one per replica, or leave it out for even shares",
                "replicas.shares: [32, 31] adds up to 63, but data.batch_size is 64; "
                "give shares of the whole mini-batch, or leave it out for even shares",
            ],
        ),
        (
            {"replicas": {"count": 2, "shares": [30, 34], "balance": "dynamic_batch_size"}},
            [
                "replicas.shares: `dynamic_batch_size` finds the shares, from even ones on; "
                "leave it out, or set replicas.balance to fixed"
            ],
        ),
        (
            {**GPIPE, "replicas": {"count": 2, "balance": "dynamic_batch_size"}},
            [
                "replicas.balance: torch's pipelines hold the shapes of their tensors, so the shares of `gpipe` cannot "
                "change; leave it at fixed, or train by local losses or the schedule single"
            ],
        ),
        (
            {**GPIPE, "replicas": {"count": 2, "shares": [24, 40]}},
            [
                "replicas.shares: the micro-batches of `gpipe` are the same on all replicas: it needs equal shares, "
                "not shares of [24, 40]; use a data.batch_size that 2 divides, and leave shares out"
            ],
        ),
        (
            {**GPIPE, "replicas": {"count": 3}},
            [
                "replicas.count: the micro-batches of `gpipe` are the same on all replicas: it needs equal shares, "
                "and 64 samples are not 3 equal shares; use a data.batch_size that 3 divides"
            ],
        ),
        (
            {**GPIPE, "batch_size": 24, "replicas": {"count": 4}},
            [
                "pipeline.micro_batches: a replica's share of 6 samples cannot be cut into 4 equal micro-batches; "
                "use a divisor of 6, or another data.batch_size"
            ],
        ),
        (
            {
                "replicas": {
                    "count": 2,
                    "synchronise": {"average_every": "8 steps"},
                    "compression": "top_k",
                }
            },
            [
                "replicas.compression: `top_k` makes gradients smaller, and with model averaging only weights are "
                "sent; set replicas.compression to none, or synchronise to every_step",
            ],
        ),
        (
            {"replicas": {"count": 2, "engine": "ray_train"}},
            [
                "replicas.engine: `ray_train` is plain DDP, with method.kind backpropagation; "
                "set method.kind to backpropagation, or replicas.engine to graph"
            ],
        ),
        (
            {
                **BACKPROPAGATION,
                "pipeline": {"stages": 2},
                "optimizer": {"kind": "adam", "accumulate": 2},
                "replicas": {
                    "count": 2,
                    "engine": "ray_train",
                    "balance": "fixed",
                    "all_reduce": "ring",
                    "compression": "top_k",
                    "disturbance": {"workers": [1], "factor": 2, "epochs": [1, 1]},
                },
            },
            [
                f"replicas.engine: `ray_train` is plain DDP, with {key} {value}; "
                f"set {key} to {value.split(',')[0]}, or replicas.engine to graph"
                for key, value in (
                    ("pipeline.schedule", "single"),
                    ("replicas.all_reduce", "backend"),
                    ("replicas.compression", "none, fp16, bf16 or powersgd"),
                    ("replicas.disturbance", "null"),
                    ("optimizer.accumulate", "1"),
                )
            ],
        ),
        (
            {**BACKPROPAGATION, "replicas": {"count": 2, "engine": "ray_train", "compression": "powersgd"}},
            [
                "replicas.compression.start_iteration: torch's hook compresses from update 2 on at the earliest, "
                "got 0; set it to 2 or more, or replicas.engine to graph"
            ],
        ),
        (
            {
                **BACKPROPAGATION,
                "data": {"source": "digits", "batch_size": 64, "last_batch": "keep"},
                "replicas": {"count": 2, "engine": "ray_train"},
            },
            [
                "replicas.engine: `ray_train` is plain DDP, with data.last_batch drop; "
                "set data.last_batch to drop, or replicas.engine to graph"
            ],
        ),
        (
            {**BACKPROPAGATION, "replicas": {"count": 3, "engine": "ray_train"}},
            [
                "replicas.count: DDP gives every replica the same weight: it needs equal shares, "
                "and 64 samples are not 3 equal shares; use a data.batch_size that 3 divides"
            ],
        ),
        (
            {"replicas": {"sync_batch_norm": True}},
            ["replicas.sync_batch_norm: there is one replica; leave it out, or set replicas.count"],
        ),
        (
            {"replicas": {"count": 2, "sync_batch_norm": True, "synchronise": {"average_every": "8 steps"}}},
            [
                "replicas.sync_batch_norm: replicas that train apart have no statistics in common; "
                "leave it at false, or set replicas.synchronise to every_step"
            ],
        ),
        (
            {"replicas": {"count": 2, "disturbance": {"workers": [0, 2], "factor": 2, "epochs": [1, 3]}}},
            [
                "replicas.disturbance.workers: there is no replica 2 among 2 replicas; "
                "they are counted from 0: name at most 1"
            ],
        ),
        (
            {"lr_schedule": {"scale_with_batch": "linear"}},
            [
                "lr_schedule.scale_with_batch: `linear` needs the batch size that the rates of the optimizer are meant "
                "for; set lr_schedule.reference_batch_size"
            ],
        ),
    ],
)
def test_findings(sections: dict[str, Any], messages: list[str]) -> None:
    assert found(spec_with(**sections)) == messages


@pytest.mark.parametrize(
    "sections",
    [
        {"replicas": {"count": 3}},  # the batch does not divide: the first replica takes one more
        {"replicas": {"count": 3, "shares": [5, 17, 42], "compression": "powersgd", "all_reduce": "tree"}},
        {"replicas": {"count": 2, "balance": "dynamic_batch_size", "sync_batch_norm": True}},
        {"replicas": {"count": 3, "synchronise": {"average_every": "8 steps"}, "balance": "dynamic_batch_size"}},
        {**BACKPROPAGATION, "replicas": {"count": 2, "balance": "dynamic_batch_size"}},
        {**BACKPROPAGATION, "replicas": {"count": 2, "engine": "ray_train", "compression": "bf16"}},
        {**GPIPE, "replicas": {"count": 4, "shares": [16, 16, 16, 16], "compression": "top_k"}},
        {"replicas": {"count": 2, "disturbance": {"workers": [0, 1], "factor": 3, "epochs": [2, 2]}}},
        {"replicas": {"count": 2, "disturbance": {"kind": "random", "factor": 3}, "balance": "dynamic_batch_size"}},
        {"lr_schedule": {"scale_with_batch": "none", "reference_batch_size": 256}},
    ],
)
def test_what_is_in_order(sections: dict[str, Any]) -> None:
    assert found(spec_with(**sections)) == []


@given(st.integers(1, 6), st.integers(1, 40), st.sampled_from(["even", "given"]), st.data())
def test_every_count_of_replicas_loads(count: int, batch_size: int, kind: str, data: st.DataObject) -> None:
    """Local losses take any shares, as long as there are enough samples."""
    shares = data.draw(st.none() | st.lists(st.integers(1, 9), min_size=count, max_size=count))
    size = batch_size if shares is None else sum(shares)
    told = found(spec_with(batch_size=size, replicas={"count": count, "shares": shares}))
    assert (told == []) == (count <= size)


def test_each_check_says_what_it_checks() -> None:
    assert all(check.__doc__ for check in REPLICA_CHECKS)
