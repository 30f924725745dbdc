"""Grey pictures in three equal channels, for networks that take colours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from alray.core.errors import DataError
from alray.data.dataset import Dataset
from alray.data.form import DataForm, SampleForm
from alray.data.opening import open_data
from tests.data import sections as spec

DIGITS: dict[str, Any] = {"source": "digits", "batch_size": 8}


def opened(section: dict[str, Any], *, for_plan: bool = False) -> Dataset:
    checked = TypeAdapter(spec.Data).validate_python(section)
    return open_data(checked, seed=0, load=str, for_plan=for_plan)


def first(data: Dataset) -> torch.Tensor:
    return data.train.take([0, 1, 2])[0]


@pytest.mark.parametrize("augment", ["none", "strong"])
def test_the_channels_are_the_grey_picture(augment: str) -> None:
    grey, colour = opened({**DIGITS, "augment": augment}), opened({**DIGITS, "augment": augment, "channels": 3})
    assert grey.sample_shape == (1, 8, 8) and colour.sample_shape == (3, 8, 8)
    assert torch.equal(first(colour), first(grey).expand(-1, 3, -1, -1))
    assert first(colour).is_contiguous()
    form = DataForm.of(colour).input
    assert isinstance(form, SampleForm) and form.prepare(torch.zeros(1, 1, 8, 8)).shape == (1, 3, 8, 8)


def test_each_channel_can_be_normalised_by_its_own_mean() -> None:
    raw, normalised = (
        opened({**DIGITS, "channels": 3, "normalise": {"mean": mean, "deviation": deviation}})
        for mean, deviation in (([0.0] * 3, [1.0] * 3), ([0.1, 0.2, 0.3], [0.5, 1.0, 2.0]))
    )
    mean, deviation = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 1.0, 2.0])
    expected = (first(raw) - mean.view(3, 1, 1)) / deviation.view(3, 1, 1)
    torch.testing.assert_close(first(normalised), expected)


def test_a_plan_without_data_knows_the_channels() -> None:
    section = {"source": "torchvision", "dataset": "FashionMNIST", "root": "/nowhere", "channels": 3}
    assert opened(section, for_plan=True).sample_shape == (3, 28, 28)


def test_other_samples_have_no_channels_to_make() -> None:
    rows = {"source": "synthetic", "shape": [4], "classes": 2, "samples": 40, "batch_size": 8, "channels": 3}
    with pytest.raises(DataError, match="no 3 channels"):
        opened(rows)
    with pytest.raises(ValidationError, match="images"):
        opened({"source": "docstrings", "channels": 3})
