"""Groups of components: backpropagation within, a local loss between."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from alray.config.loading.load import load_spec
from alray.core.errors import SpecError
from alray.inference.network import TrainedNetwork

from .conftest import Workshop
from .test_same_bits import of_family, same

FAMILIES = ["vgg", "lstm", "transformer"]
PAIRS = ("method={kind: decoupled_greedy, group: 2}", "pipeline.costs=null", "run.checkpoint={every: 5 steps}")


def weights(run_dir: Path) -> dict[str, torch.Tensor]:
    """The tensors of the last checkpoint by their names, those of blocks by the number of the block."""
    found = {}
    for number, file in enumerate(sorted(max((run_dir / "checkpoints").iterdir()).glob("component-*.safetensors"))):
        for name, tensor in load_file(file).items():
            found[name if name.startswith("head") or run_dir.name == "group" else f"f.{number}.{name[2:]}"] = tensor
    return found


@pytest.mark.few
@pytest.mark.parametrize("family", FAMILIES)
def test_one_group_is_backpropagation(tmp_path: Path, family: str) -> None:
    workshop = of_family(Workshop(tmp_path), family)
    keep = "run.checkpoint={every: 5 steps, keep: 9}"
    whole = workshop.run("method={kind: decoupled_greedy, group: 4}", "pipeline.costs=null", keep, name="group").summary
    plain = workshop.run("method={kind: backpropagation}", keep, name="plain").summary
    assert whole.scores == plain.scores
    found, wanted = weights(tmp_path / "group"), weights(tmp_path / "plain")
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in found)


@pytest.mark.few
@pytest.mark.parametrize("family", FAMILIES)
def test_groups_end_in_the_same_bits(tmp_path: Path, family: str) -> None:
    workshop = of_family(Workshop(tmp_path), family)
    alone = workshop.run(*PAIRS, "run.epochs=2", name="alone")
    assert [each.depth for each in alone.summary.scores_per_depth] == [1, 2]
    trained = TrainedNetwork(tmp_path / "alone", allow_code=True)
    scores = trained.evaluate(["test"])
    assert [each.test for each in scores] == [each.test for each in alone.summary.scores_per_depth]
    workshop.run(*PAIRS, "pipeline.partition=[1, 1]", "run.epochs=1", name="two")
    same(workshop.resume("run.epochs=2", name="two"), alone)


def test_models_are_cut_otherwise(tmp_path: Path) -> None:
    overrides = ["method={kind: decoupled_greedy, group: 2}", 'model={from: "torchvision:resnet18"}']
    with pytest.raises(SpecError) as refused:
        load_spec(Workshop(tmp_path).spec, overrides)
    assert "method.group" in [problem.key for problem in refused.value.problems]
