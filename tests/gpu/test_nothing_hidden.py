"""Trials of a study where every process of Ray sees all GPUs: each computes on the one that Ray reserved for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from alray.studies.folder import StudyFolder
from alray.studies.study import StudyOptions, Watcher, run_study

from ..engine.conftest import Workshop
from ..engine.test_studies_on_ray import study
from .conftest import GPU, SIMULATED
from .test_on_ray import ray_of_gpus

pytestmark = [
    pytest.mark.ray,
    pytest.mark.usefixtures("all_gpus_seen"),
    pytest.mark.skipif(not SIMULATED, reason="a real GPU would have to be one of several"),
]

KEEPING = '''
"""A block that refuses to compute on a GPU of another process."""

from pathlib import Path
from time import sleep

import ray
from torch import nn


class Keeping(nn.Module):
    def __init__(self, input, width, met=None):
        super().__init__()
        self.conv = nn.Conv2d(input[0], width, 1)
        self.met = met

    def forward(self, s, mask=None):
        given = ray.get_runtime_context().get_accelerator_ids()["GPU"]
        if s.device.type not in ("cpu", "meta") and str(s.device.index) not in given:
            raise RuntimeError(f"{s.device}, and Ray gave {given}")
        if self.met is not None:  # both trials are under way at the same time, so on two GPUs
            (Path(self.met) / str(given)).touch()
            while len(list(Path(self.met).iterdir())) < 2:
                sleep(0.1)
        return self.conv(s)
'''


@pytest.fixture(scope="module")
def all_gpus_seen() -> Iterator[None]:
    with ray_of_gpus(RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES="1"):
        yield


@pytest.mark.parametrize("stages", [1, 2])
def test_trials_keep_to_their_gpus(workshop: Workshop, stages: int) -> None:
    """Of two stages it is the trial's own process that is given none: it drives them, and measured on the first GPU."""
    (workshop.folder / "keeping.py").write_text(KEEPING)
    met = workshop.folder / "met"
    met.mkdir()
    together = f", met: {met}" if stages == 1 else ""
    block = f'{{block: "python:keeping.Keeping", width: 6{together}}}'
    asked = (
        f"resources: {{device: {GPU.type}, per_stage: {{CPU: 1, GPU: 1}}}}, pipeline.stages: {stages}, "
        f"pipeline.costs: null, run.epochs: 1, model.components.2: {block}"
    )
    path = study(workshop, f"set: {{{asked}}}\naxes: {{variant: {{one: {{}}, other: {{seed: 4}}}}}}\n")
    run_study(path, [], StudyOptions(study_dir=workshop.folder / "out"), Watcher(print, lambda progress: None))
    records = StudyFolder.open(workshop.folder / "out").records()
    assert [(each.status, each.reason) for each in records] == [("finished", None)] * 2
