"""Files that are specs, files that are not, and the way back to text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from alray.config.loading.load import dump_spec, load_spec
from alray.parts.sources.image_folder.keys import ImageFolder


def test_a_spec(small: str, write: Callable[[str], Path]) -> None:
    loaded = load_spec(write(small))
    assert (loaded.spec.name, loaded.file, loaded.notes) == ("small", Path("x.yaml"), [])


def test_relative_paths_are_taken_from_the_spec(small: str, tmp_path: Path) -> None:
    data = "{source: image_folder, train: images/train, test: ../test, image_size: 8}"
    (tmp_path / "a").mkdir()
    file = tmp_path / "a" / "x.yaml"
    file.write_text(small.replace("{source: digits}", data))
    data_spec = load_spec(file, ["data.train=other"]).spec.data
    assert isinstance(data_spec, ImageFolder)
    assert data_spec.train == tmp_path / "a" / "other"
    assert data_spec.test == tmp_path / "a" / ".." / "test"


SPECS = {
    "small": "name: small",
    "every kind of value": """name: on
seed: 9
lr_schedule: {kind: linear, decay_share: 0.5, warmup_epochs: 0.5}
resources: {device: cpu, per_stage: [{CPU: 1}, {CPU: 2, disk: 0.5}], labels: {zone: '1:30'}}""",
}


@pytest.mark.parametrize("head", SPECS.values(), ids=SPECS.keys())
def test_what_is_dumped_loads_to_an_equal_spec(small: str, write: Callable[[str], Path], head: str) -> None:
    spec = load_spec(write(small.replace("name: small", head))).spec
    text = dump_spec(spec)
    assert text.startswith("version: 1\n")
    assert load_spec(write(text)).spec == spec


def test_a_dumped_spec_of_ones_own_classes_loads_from_elsewhere(
    small: str, write: Callable[[str], Path], tmp_path: Path
) -> None:
    own = "{block: 'python:a.B', rate: 1.0e-7, names: [on, '010', null], deep: {a: [1, {b: true}]}, repeat: 2}"
    text = small.replace("{block: vgg, channels: [4]}", own)
    text = text.replace("{source: digits}", "{source: image_folder, train: t, image_size: 8}")
    text = text.replace("{epochs: 1}", "{samples: 9, evaluate_every: 2.5 epochs, checkpoint: null}")
    spec = load_spec(write(text)).spec
    (tmp_path / "run").mkdir()
    copy = tmp_path / "run" / "spec.yaml"
    copy.write_text(dump_spec(spec))
    assert load_spec(copy).spec == spec


def test_a_byte_order_mark_is_no_harm(small: str, write: Callable[[str], Path]) -> None:
    assert load_spec(write("\ufeff" + small)).spec.name == "small"
