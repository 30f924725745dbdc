"""What the models hold: `repeat`, free fields, schedules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from alray.config.sections.blocks import OwnBlock
from alray.config.sections.data import OwnData
from alray.config.sections.section import Section, meanings
from alray.config.sections.spec import Pipeline, Resources, Spec
from alray.config.study.section import Study
from alray.parts.blocks.vgg import Vgg
from alray.parts.methods.associated_learning import AssociatedLearning
from alray.parts.rates.constant import Constant
from alray.parts.sources.image_folder.keys import ImageFolder

DOCUMENT: dict[str, Any] = {
    "name": "small",
    "data": {"source": "digits"},
    "model": {"components": [{"block": "vgg", "channels": [4]}]},
    "run": {"epochs": 1},
}


def spec_with(**sections: Any) -> Spec:
    return Spec.model_validate({**DOCUMENT, **sections})


def every_section() -> Iterator[type[Section]]:
    waiting = [Section]
    while waiting:
        section = waiting.pop()
        waiting += section.__subclasses__()
        yield section


def test_every_field_says_what_it_is() -> None:
    silent = [
        f"{section.__name__}.{name}"
        for section in {*every_section(), Study}
        for name in section.model_fields
        if name not in meanings(section)
    ]
    assert silent == []


def test_a_kind_left_out_is_the_default_kind() -> None:
    assert spec_with(method={"label_dim": 7}).method == AssociatedLearning(label_dim=7)
    assert spec_with(lr_schedule={"warmup_epochs": 2}).lr_schedule == Constant(warmup_epochs=2)


def test_repeat_is_written_out() -> None:
    components = [{"block": "vgg", "channels": [4], "repeat": 2}, {"block": "python:a.B", "width": 3, "repeat": 3}]
    model = spec_with(model={"components": components}).model
    assert model.num_components == 5
    vgg, own = Vgg(block="vgg", channels=(4,)), model.expanded()[-1]
    assert model.expanded()[:2] == [vgg, vgg]
    assert isinstance(own, OwnBlock) and own.repeat == 1 and own.fields == {"width": 3}


def test_fields_of_a_built_in_block_are_its_own_keys() -> None:
    assert Vgg(block="vgg", channels=(4, 8), pool=True).fields == {"channels": (4, 8), "pool": True}


def test_fields_of_a_data_source_of_ones_own() -> None:
    data = spec_with(data={"source": "python:a.Files", "folder": "x", "batch_size": 8}).data
    assert isinstance(data, OwnData)
    assert data.fields == {"folder": "x"} and data.batch_size == 8


def test_a_key_named_fields_is_a_field_too() -> None:
    data = spec_with(data={"source": "python:a.Files", "fields": [1]}).data
    assert isinstance(data, OwnData) and data.fields == {"fields": [1]}


def test_arguments_of_an_own_class_are_no_keys_of_alray(load_small: Callable[..., Any]) -> None:
    """They may have the names of keys that other sections have."""
    own = load_small(
        "data={source: 'python:words.Own', label_columns: [1]}",
        "method={kind: 'python:words.Method', gather: true, label_smoothing: 0.1}",
    )
    assert own.spec.data.fields == {"label_columns": [1]}


@pytest.mark.parametrize(
    ("written", "method", "schedule"),
    [
        ("auto", "associated_learning", "streamed"),
        ("auto", "backpropagation", "single"),
        ("auto", "supervised_contrastive", "streamed"),
        ("overlapped", "associated_learning", "overlapped"),
    ],
)
def test_schedule(written: str, method: str, schedule: str) -> None:
    assert spec_with(pipeline={"schedule": written}, method={"kind": method}).schedule == schedule


def test_a_partition_says_how_many_stages_there_are() -> None:
    assert Pipeline.model_validate({"partition": [1, 1, 2]}).stages == 3
    assert Pipeline.model_validate({"partition": [1, 1, 2], "stages": 2}).stages == 2


def test_bundles_given_for_each_stage() -> None:
    resources = Resources.model_validate({"per_stage": [{"CPU": 1}, {"CPU": 2, "GPU": 0.5}]})
    assert resources.bundles(2) == [{"CPU": 1.0}, {"CPU": 2.0, "GPU": 0.5}]
    assert [resources.device_of(stage) for stage in (0, 1)] == ["cpu", "auto"]
    assert resources.resolved_device == "auto"
    assert resources.model_copy(update={"device": "xpu"}).resolved_device == "xpu"
    assert resources.model_copy(update={"device": "cpu"}).device_of(1) == "cpu"


@pytest.mark.parametrize("resource", ["GPU", "NPU", "HPU"])
def test_a_stage_asks_for_an_accelerator_by_rays_name(resource: str) -> None:
    of_torch = "xpu" if resource == "GPU" else resource.lower()
    spec = spec_with(resources={"device": of_torch, "per_stage": {"CPU": 1, resource: 1}})
    assert spec.resources.device_of(0) == of_torch
    assert Resources.model_validate({"per_stage": {resource: 1}}).resolved_device == "auto"


def test_a_spec_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        spec_with().seed = 3


def test_paths_are_absolute_where_the_folder_is_known() -> None:
    data = {"source": "image_folder", "train": "images/train", "test": "/t", "image_size": 8}
    spec = Spec.model_validate({**DOCUMENT, "data": data}, context={"directory": Path("/specs")})
    assert isinstance(spec.data, ImageFolder)
    assert (spec.data.train, spec.data.test) == (Path("/specs/images/train"), Path("/t"))


def test_sections_are_abstract_or_final() -> None:
    """A class that others derive from is not itself a member of a union."""
    for section in every_section():
        if section.__subclasses__() and section is not Section:
            assert section.__name__.endswith("Section") or section.__name__ in ("OwnCode", "Search")
        assert inspect.getdoc(section)
