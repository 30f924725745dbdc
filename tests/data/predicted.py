"""What a run makes of a file or a text to predict."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from alray.data.dataset import Dataset
from alray.data.form import DataForm, SampleForm
from alray.data.source import Source


def inputs(data: Dataset, given: str) -> Iterator[Tensor]:
    """Its inputs, as the run folder of these data says."""
    form = DataForm.model_validate_json(DataForm.of(data).model_dump_json()).input
    if isinstance(form, SampleForm) and not form.reads_files:
        assert isinstance(data.inputs, Source)
        found = form.inputs_of(data.inputs.read_image)
    else:
        found = form.inputs()
    return (sample for _, sample in found.read(given))
