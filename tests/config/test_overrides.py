"""`key.sub=value`: types, sections, kinds, what gives way, and what is refused."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from alray.config.loading.load import LoadedSpec, load_spec
from alray.config.sections.blocks import OwnBlock
from alray.config.sections.head import Head
from alray.core.errors import SpecError
from alray.parts.methods.backpropagation import Backpropagation
from alray.parts.optimizers.sgd import Sgd
from alray.parts.rates.cosine import Cosine
from alray.parts.sources.synthetic.keys import Synthetic
from alray.planning.schedules.table import SCHEDULES

Complaints = Callable[..., list[str]]
Load = Callable[..., LoadedSpec]


@pytest.fixture
def load(write: Callable[[str], Path], small: str) -> Load:
    """Loads the small spec, with overrides."""
    return lambda *overrides, text=small: load_spec(write(text), overrides)


@pytest.mark.parametrize(
    ("override", "get", "value"),
    [
        ("optimizer.lr=3e-4", lambda spec: spec.optimizer.lr, 3e-4),
        ("seed=7", lambda spec: spec.seed, 7),
        ("name=on", lambda spec: spec.name, "on"),
        ("method.bridge.pool=null", lambda spec: spec.method.bridge.pool, None),
        ("method.bridge.hidden=9", lambda spec: spec.method.bridge.hidden, 9),
        ("method.bridge={pool: 2}", lambda spec: spec.method.bridge.pool, 2),
        ("pipeline.partition=[1, 1]", lambda spec: spec.pipeline.partition, (1, 1)),
        ("model.components.1.channels=[1, 2]", lambda spec: spec.model.components[1].channels, (1, 2)),
        ("model.components.1.channels.0=5", lambda spec: spec.model.components[1].channels, (5,)),
        ("model.components[1].repeat=2", lambda spec: spec.model.num_components, 3),
        ("run.checkpoint=", lambda spec: spec.run.checkpoint, None),
        ("lr_schedule=cosine", lambda spec: spec.lr_schedule, Cosine(kind="cosine")),
        ("lr_schedule.kind=cosine", lambda spec: spec.lr_schedule, Cosine(kind="cosine")),
    ],
)
def test_a_value(load: Load, override: str, get: Callable[[Any], Any], value: Any) -> None:
    loaded = load(override)
    assert get(loaded.spec) == value
    assert loaded.notes == []


def test_a_method_by_name_replaces_the_section(load: Load, small: str) -> None:
    text = small.replace("{kind: associated_learning}", "{label_dim: 7}").replace("{stages: 2}", "{in_flight: 2}")
    loaded = load("method=backpropagation", "method.head={hidden: 9}", text=text)
    assert loaded.spec.method == Backpropagation(kind="backpropagation", head=Head(hidden=9))
    assert loaded.notes == []


def keys_of(notes: Sequence[str]) -> list[str]:
    """The key with which each note begins."""
    return [note.split()[0] for note in notes]


def test_another_kind_drops_what_it_lacks_and_keeps_the_rest(load: Load, small: str) -> None:
    text = small.replace("{kind: adam}", "{kind: adam, lr: 0.5, betas: [0.8, 0.9], eps: 1.0e-6, clip_norm: 1.0}")
    loaded = load("optimizer.kind=sgd", text=text)
    assert loaded.spec.optimizer == Sgd(kind="sgd", lr=0.5, clip_norm=1.0)
    (note,) = loaded.notes
    assert note.startswith("optimizer.kind=sgd ") and "optimizer.betas, optimizer.eps" in note


def test_another_source_and_another_block(load: Load) -> None:
    loaded = load("data.source=synthetic", "model.components.1.block=python:a.B")
    assert isinstance(loaded.spec.data, Synthetic)
    own = loaded.spec.model.components[1]
    assert isinstance(own, OwnBlock) and own.fields == {"channels": [8], "pool": True}


def test_the_length_asked_for_sets_the_other_aside(load: Load) -> None:
    loaded = load("run.steps=100")
    assert (loaded.spec.run.epochs, loaded.spec.run.steps) == (None, 100)
    assert keys_of(loaded.notes) == ["run.epochs"] and "run.steps" in loaded.notes[0]


def test_a_partition_asked_for_sets_the_stages_aside(load: Load) -> None:
    loaded = load("pipeline.partition=[2]")
    assert loaded.spec.pipeline.stages == 1
    assert keys_of(loaded.notes) == ["pipeline.stages"] and "pipeline.partition" in loaded.notes[0]


LATE = """\
name: late
data: {source: digits, batch_size: 64}
model: {components: [{block: mlp, widths: [8], repeat: 4}]}
method: backpropagation
optimizer: {kind: sgd, lr: 0.1}
pipeline: {schedule: 2bw, stages: 2, activation_checkpointing: true}
replicas: {count: 2, sync_batch_norm: true, disturbance: {workers: [1], factor: 2, epochs: [1, 2]}}
run: {epochs: 1}
"""


@pytest.mark.parametrize(
    ("overrides", "aside"),
    [
        (["method=decoupled_greedy"], ["pipeline.schedule", "pipeline.activation_checkpointing"]),
        (["replicas.count=1"], ["replicas.sync_batch_norm", "replicas.disturbance"]),
        (["replicas.count=3", "data.batch_size=48"], []),
    ],
)
def test_a_layout_asked_for_sets_aside_what_is_for_others(load: Load, overrides: list[str], aside: list[str]) -> None:
    assert keys_of(load(*overrides, text=LATE).notes) == aside
    assert keys_of(load(text=LATE).notes) == []


def test_a_key_asked_for_keeps_its_section(load: Load) -> None:
    text = "replicas: {count: 2, disturbance: {workers: [1], factor: 2.0, epochs: [1, 2]}}\n"
    text = LATE[: LATE.index("pipeline:")] + text + "run: {epochs: 3}\n"
    with pytest.raises(SpecError, match="replicas"):
        load("replicas.count=1", "replicas.disturbance.workers=[1]", text=text)
    assert keys_of(load("replicas.count=1", text=text).notes) == ["replicas.disturbance"]


def test_of_several_replicas_the_slowed_ones_must_be_there(load: Load) -> None:
    """Points of a study that differ in their number would not be slowed alike."""
    with pytest.raises(SpecError, match="replica 2"):
        load("replicas.count=2", text=LATE.replace("workers: [1]", "workers: [2]").replace("count: 2", "count: 4"))


def test_a_method_asked_for_sets_the_engine_of_others_aside(load: Load) -> None:
    engine = LATE[: LATE.index("pipeline:")] + "replicas: {engine: ray_train}\n"
    loaded = load("method=decoupled_greedy", text=engine + "run: {epochs: 1}\n")
    assert loaded.spec.replicas.engine == "graph" and keys_of(loaded.notes) == ["replicas.engine"]


def test_stages_asked_for_set_the_partition_aside(load: Load, small: str) -> None:
    loaded = load("pipeline.stages=1", text=small.replace("{stages: 2}", "{partition: [1, 1]}"))
    assert loaded.spec.pipeline.partition == "auto"


@pytest.mark.parametrize(
    ("data", "override"),
    [
        ("{source: table, train: a.csv, validation_fraction: 0.2}", "data.validation=b.csv"),
        ("{source: image_folder, train: a, image_size: 8, validation_fraction: 0.2}", "data.validation=b"),
        ("{source: 'python:own.Set', validation_fraction: 0.2}", "data.brings_validation=true"),
    ],
)
def test_a_validation_set_asked_for_sets_the_fraction_aside(load: Load, small: str, data: str, override: str) -> None:
    text = re.sub(r"data: .*", f"data: {data}", small)
    loaded = load(override, text=text)
    assert loaded.spec.data.own_validation and loaded.spec.data.validation_fraction == 0
    assert loaded.notes == ["data.validation_fraction of the file is set aside: the source has its own validation set"]
    with pytest.raises(SpecError, match=r"validation_fraction.*leave it out"):
        load(override, "data.validation_fraction=0.3", text=text)


def test_a_file_with_a_validation_set_and_a_fraction_is_refused(load: Load, small: str) -> None:
    data = "{source: table, train: a.csv, validation: b.csv, validation_fraction: 0.2}"
    with pytest.raises(SpecError, match="validation_fraction"):
        load("data.batch_size=4", text=re.sub(r"data: .*", f"data: {data}", small))


def test_another_method_of_local_losses_leaves_the_pipeline_alone(load: Load, small: str) -> None:
    text = small.replace("{stages: 2}", "{schedule: overlapped, partition: [1, 1]}")
    loaded = load("method=supervised_contrastive", text=text)
    assert loaded.notes == []
    assert (loaded.spec.schedule, loaded.spec.pipeline.partition) == ("overlapped", (1, 1))


def test_backpropagation_sets_the_pipeline_of_local_losses_aside(load: Load, small: str) -> None:
    text = small.replace("{stages: 2}", "{schedule: streamed, partition: [1, 1], stages: 2}")
    loaded = load("method=backpropagation", "run.steps=3", text=text)
    assert (loaded.spec.schedule, loaded.spec.pipeline.stages, loaded.spec.pipeline.partition) == ("single", 1, "auto")
    of_pipeline = ["pipeline.schedule", "pipeline.stages", "pipeline.partition"]
    assert keys_of(loaded.notes) == ["run.epochs", *of_pipeline]


@pytest.mark.parametrize("schedule", [schedule.name for schedule in SCHEDULES.values() if schedule.is_pipeline])
def test_a_pipeline_of_backpropagation_asked_for_keeps_the_stages(load: Load, small: str, schedule: str) -> None:
    text = small.replace("{stages: 2}", "{schedule: streamed, partition: uniform, stages: 2}")
    text = text.replace("channels: [4]", "channels: [4], repeat: 3")  # enough components for the virtual stages
    asked = ("method=backpropagation", f"pipeline.schedule={schedule}", "pipeline.micro_batch_norm=accept")
    loaded = load(*asked, text=text)
    assert (loaded.spec.schedule, loaded.spec.pipeline.stages, loaded.notes) == (schedule, 2, [])


@pytest.mark.parametrize("override", ["method=bp", "method=backpropagatoin", "method.kind=bp"])
def test_a_method_that_is_misspelt_sets_aside_what_the_right_one_does(
    complaints: Complaints, small: str, override: str
) -> None:
    text = small.replace("{stages: 2}", "{schedule: streamed, stages: 2}")
    (said,) = complaints(text, [override])
    assert said.startswith("command line: method.kind: unknown kind `") and "did you mean `backpropagation`?" in said


def test_back_to_local_losses(load: Load, small: str) -> None:
    text = small.replace("{kind: associated_learning}", "{kind: backpropagation}")
    loaded = load("method=associated_learning", text=text.replace("{stages: 2}", "{schedule: single}"))
    assert loaded.spec.schedule == "streamed"


def test_an_alias_changes_in_one_place(load: Load, small: str) -> None:
    text = small.replace("{block: vgg, channels: [4]}", "&a {block: vgg, channels: [4]}")
    text = text.replace("{block: vgg, channels: [8], pool: true}", "*a")
    components = load("model.components.0.channels.0=5", text=text).spec.model.components
    assert [entry.fields["channels"] for entry in components] == [(5,), (4,)]


@pytest.mark.parametrize("override", ["max_grad_norm=1.0", "optimizer.gradient_clip_val=1.0"])
def test_what_other_libraries_clip_is_not_what_local_losses_clip(load: Load, override: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(override)
    (problem,) = caught.value.problems
    assert problem.hint is not None and "clip_norm" in problem.hint and "each component" in problem.hint


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("epochs=3", "run.epochs=3"),
        ("learning_rate=0.1", "optimizer.lr=0.1"),
        ("optimizer.learning_rate=0.1", "lr"),
        ("run.batch_size=8", "data.batch_size=8"),
        ("device=gpu", "resources.device=cuda"),
    ],
)
def test_a_key_by_another_name_or_in_another_section(load: Load, override: str, meant: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(override)
    (problem,) = caught.value.problems
    assert (problem.message, problem.hint) == ("unknown key", f"did you mean `{meant}`?")


@pytest.mark.parametrize(
    ("override", "word"),
    [
        ("name=007", 'name="007"'),
        ("name=1e3", 'name="1e3"'),
        ("data.classes='2020'", "data.classes=[2020]"),
        ("data.classes='a, b'", 'data.classes=["a", "b"]'),
        ("data.classes=a b", 'data.classes=["a b"]'),
    ],
)
def test_a_hint_works_when_it_is_followed_in_a_shell(
    load: Load, complaints: Complaints, small: str, override: str, word: str
) -> None:
    text = re.sub(r"data: .*", "data: {source: table, train: a.csv}", small)
    (said,) = complaints(text, [override])
    (typed,) = re.findall("in a shell as `(.*)`$", said)
    assert shlex.split(typed) == [word]
    assert load(word, text=text)


def test_a_key_of_another_kind_of_the_same_section_is_no_suggestion(load: Load) -> None:
    with pytest.raises(SpecError, match=r"optimizer\.momentum: unknown key; known: "):
        load("optimizer.momentum=0.9")
