"""`replicas`, and what large mini-batches need: fields, defaults, and what checks let pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alray.config.loading.load import dump_spec, load_spec
from alray.config.loading.yaml_text import read_yaml
from alray.config.schema import json_schema
from alray.config.sections.checks import CHECKS
from alray.config.sections.grammar import spelled_out
from alray.config.sections.paths import key_text
from alray.config.sections.replica_checks import REPLICA_CHECKS
from alray.config.sections.replicas import AverageEvery, FixedDisturbance, RandomDisturbance
from alray.config.sections.spec import Replicas, Spec
from alray.parts.compressions.fp16.keys import Fp16
from alray.parts.compressions.powersgd.keys import PowerSgd
from alray.parts.compressions.top_k.keys import TopK
from alray.parts.optimizers.lars import Lars

BACKPROPAGATION: dict[str, Any] = {"method": {"kind": "backpropagation"}}
GPIPE: dict[str, Any] = {**BACKPROPAGATION, "pipeline": {"schedule": "gpipe", "stages": 2, "micro_batches": 4}}


def spec_with(batch_size: int = 64, **sections: Any) -> Spec:
    document = {
        "name": "small",
        "data": {"source": "digits", "batch_size": batch_size},
        "model": {"components": [{"block": "linear", "width": 4}, {"block": "linear", "width": 4}]},
        "run": {"epochs": 1},
        **sections,
    }
    return Spec.model_validate(spelled_out(document))


def replicas(**values: Any) -> Replicas:
    return spec_with(replicas=values).replicas


def found(spec: Spec) -> list[str]:
    """What all checks find."""
    checks = (*CHECKS, *REPLICA_CHECKS)
    return [f"{key_text(path)}: {message}; {hint}" for check in checks for path, message, hint in check(spec)]


def test_a_bare_name_is_that_compression_with_its_defaults() -> None:
    for kind in ("none", "fp16", "bf16", "powersgd", "top_k"):
        assert replicas(compression=kind) == replicas(compression={"kind": kind})
        assert replicas(compression=kind).compression.kind == kind


def test_compressions_have_values_of_their_own() -> None:
    assert replicas(compression="powersgd").compression == PowerSgd(kind="powersgd", rank=2, start_iteration=0)
    assert replicas(compression="top_k").compression == TopK(kind="top_k", fraction=0.01)
    given_ones = replicas(compression={"kind": "powersgd", "rank": 4, "start_iteration": 10}).compression
    assert given_ones == PowerSgd(kind="powersgd", rank=4, start_iteration=10)


def test_model_averaging_counts_mini_batches() -> None:
    averaged = replicas(synchronise={"average_every": "8 steps"}).synchronise
    assert isinstance(averaged, AverageEvery) and averaged.num_steps == 8


def test_meetings_of_components_in_turns() -> None:
    apart = replicas(synchronise={"average_every": "6 steps", "outer": {}, "fragments": 3, "delay": 2}).synchronise
    due = {component: [step for step in range(20) if apart.is_due(component, step)] for component in range(4)}
    assert due == {0: [6, 12, 18], 1: [2, 8, 14], 2: [4, 10, 16], 3: [6, 12, 18]}
    assert (apart.copies, AverageEvery(average_every="6 steps").copies) == (3, 0)


def test_disturbances() -> None:
    fixed = replicas(disturbance={"workers": [1], "factor": 3.0, "epochs": [2, 6]}).disturbance
    assert fixed == FixedDisturbance(workers=(1,), factor=3.0, epochs=(2, 6))
    luck = replicas(disturbance={"kind": "random", "factor": 3}).disturbance
    assert isinstance(luck, RandomDisturbance)
    assert (luck.chance, luck.least_epochs, luck.most_epochs) == (0.1, 4, 20)


def test_large_batches() -> None:
    spec = spec_with(
        optimizer={"kind": "lars", "lr": 0.1, "accumulate": 4},
        lr_schedule={"warmup_epochs": 5, "scale_with_batch": "linear", "reference_batch_size": 256},
    )
    lars, schedule = spec.optimizer, spec.lr_schedule
    assert isinstance(lars, Lars)
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


@pytest.mark.few
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

    rank_four = PowerSgd(kind="powersgd", rank=4)
    assert compression("", "replicas.compression={kind: powersgd, rank: 4}") == rank_four
    assert compression("", "replicas.compression=powersgd", "replicas.compression.rank=4") == rank_four
    assert compression("replicas: {compression: {kind: powersgd, rank: 4}}", "replicas.compression.kind=fp16") == (
        Fp16(kind="fp16")
    )


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


def test_a_new_compression_says_that_ddp_can_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_with(**BACKPROPAGATION, replicas={"count": 2, "engine": "ray_train", "compression": "top_k"})
    (fault,) = found(spec)
    monkeypatch.setattr(TopK, "by_ddp", "ddp:TopKDdp")
    assert fault.startswith("replicas.engine: ") and found(spec) == []


@given(st.integers(1, 6), st.integers(1, 40), st.sampled_from(["even", "given"]), st.data())
def test_every_count_of_replicas_loads(count: int, batch_size: int, kind: str, data: st.DataObject) -> None:
    """Local losses take any shares, as long as there are enough samples."""
    shares = data.draw(st.none() | st.lists(st.integers(1, 9), min_size=count, max_size=count))
    size = batch_size if shares is None else sum(shares)
    told = found(spec_with(batch_size=size, replicas={"count": count, "shares": shares}))
    assert (told == []) == (count <= size)
