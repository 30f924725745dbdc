"""A learning rate that follows the metric: the same on any stages and replicas, and after a resume."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import alray
from alray.core.run_folder.records import StepRecord, read
from alray.orchestrate import run_spec
from alray.runtime.options import Options

from .conftest import Asked, Watching

X = torch.randn(60, 6, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
COST = {"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}
KEYS: dict[str, Any] = {
    "data": {"batch_size": 10},
    "optimizer": {"kind": "sgd", "lr": 0.3},
    "lr_schedule": {"kind": "plateau", "factor": 0.5, "patience": 0, "min_lr": 0.05},
    "pipeline": {"costs": [COST, COST]},
    "run": {"steps": 12, "train": "never", "evaluate_every": "1 steps", "checkpoint": {"every": "2 steps", "keep": 9}},
    "progress": False,
}


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def rates(folder: Any) -> dict[int, float]:
    return {each.step: each.lr for each in read(Path(folder) / "records.jsonl") if isinstance(each, StepRecord)}


def test_it_is_the_same_on_any_stages_and_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.chdir(tmp_path)
    data = ((X, Y), (X, Y), None)
    train = partial(alray.train, net(), *data, inline=True, **KEYS)
    whole = train(stages=1, output="whole")
    values = list(rates("whole").values())
    assert values == sorted(values, reverse=True) and 0.05 == values[-1] < values[4] < values[0] == 0.3
    two = train(stages=2)
    assert two.summary.weights_sha256 == whole.summary.weights_sha256 and rates(two.folder) == rates("whole")
    options = Options(inline=True, run_dir=Path("stopped"), objects=whole.objects, stop_after=5)
    run_spec(whole.spec, ["pipeline.stages=2"], options, Watching(), Asked())
    resume = partial(alray.load_run("stopped").resume, model=net(), data=data, inline=True, progress=False)
    with pytest.raises(alray.AlrayError, match=r"run\.evaluate_every"):
        resume({"run.evaluate_every": "2 steps"})
    ended = resume({"pipeline.stages": 1})
    assert ended.summary.weights_sha256 == whole.summary.weights_sha256 and rates("stopped") == rates("whole")
    replicas = train(stages=2, replicas={"count": 2}, output="replicas")
    assert rates("replicas")[12] == 0.05 and replicas.summary.weights_sha256 is not None
