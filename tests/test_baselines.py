"""The baselines: one trains from the folder of photographs that users download; ResNet-8 is the published network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from alray.cli.main import execute
from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.core.run_folder.records import StageRecord, StepRecord, read
from alray.models.network import Network
from alray.models.shape import Shape

from .stand_ins import Overrides

pytestmark = pytest.mark.stand_ins

FOLDER = Path(__file__).parents[1] / "specs" / "baselines"
SPEC = FOLDER / "sync_sgd_dogs_vs_cats.yaml"


@pytest.mark.full  # test_specs.py plans it, tests/engine/test_replicas.py trains by its settings
def test_synchronous_sgd_on_dogs_and_cats(
    tmp_path: Path, stand_ins: Mapping[str, Overrides], capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    """Two workers instead of eight, smaller mini-batches; everything else is as in the spec."""
    small = ["replicas.count=2", "data.batch_size=64", "data.image_size=16", "run.steps=40"]
    rate = "lr_schedule.reference_batch_size=32"  # twice the rate after the warm-up, which is longer than the run
    place = ["--inline", "--json", "--output", str(tmp_path / "run")]
    assert execute(["run", str(SPEC), *stand_ins["dogs_vs_cats"], *small, rate, *place]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["status"], summary["replicas"], summary["steps"]) == ("finished", 2, 40)
    assert summary["accuracy"]["test"] > 0.9  # the dogs of the stand-in are brighter
    records = list(read(tmp_path / "run" / "records.jsonl"))
    rates = [record.lr for record in records if isinstance(record, StepRecord)]
    assert rates[0] == pytest.approx(0.1) and 0.1 < rates[-1] < 0.2 and rates == sorted(rates)
    stages = [record for record in records if isinstance(record, StageRecord)]
    assert {record.replica for record in stages} == {0, 1}
    assert all(record.all_reduce_bytes > 0 for record in stages if not record.warm_up)


@pytest.mark.few
@pytest.mark.parametrize(("shortcut", "parameters"), [(None, 78_042), ("1x1", 78_042), ("3x3", 98_522)])
def test_resnet8_has_as_many_parameters_as_published(shortcut: str | None, parameters: int, one_thread: None) -> None:
    """Shallue et al. 2019 have shortcuts of 1 x 1, the thesis's ResNet has 3 x 3."""
    overrides = [] if shortcut is None else [f"model.components.{index}.shortcut={shortcut}" for index in (2, 3)]
    spec = load_spec(FOLDER / "resnet8_cifar10.yaml", overrides).spec
    network = Network(spec, sample=Shape((3, 32, 32)), classes=10, load=UserCode(FOLDER))
    components = [network.component(index, "meta") for index in range(len(network))]
    assert sum(parameter.numel() for each in components for parameter in each.parameters()) == parameters
