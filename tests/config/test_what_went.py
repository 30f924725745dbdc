"""What earlier versions of alray had: a spec that still writes it is told what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from alray.cli.main import execute
from alray.config.loading.load import load_spec
from alray.config.study.load import load_study
from alray.core.errors import SpecError

SPEC = {
    "name": "old",
    "data": {"source": "docstrings"},
    "model": {"components": [{"block": "embedding", "dim": 4}]},
    "run": {"epochs": 1},
}


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("optimizer.kind=rmsprop", "{kind: torch, name: RMSprop, lr: 0.01}"),
        ("lr_schedule={kind: step, every: 3 epochs}", "multi_step"),
        ("lr_schedule={kind: rising, first_factor: 0.1}", "`warmup_epochs`"),
        ("lr_schedule=one_cycle", "cosine"),
        ("run.trackers=[mlflow]", "pip install ./plugins/mlflow"),
        ("run.trackers=[tensorboard]", "pip install tensorboard"),
        ("run.trackers=[wandb]", "pip install ./plugins/wandb"),
        ("data.cache=there", "XDG_CACHE_HOME"),
        ("method={kind: decoupled_information, head: auto}", "`pool`"),
    ],
)
def test_it_is_told_what_to_write_instead(written: str, instead: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(SPEC, [written])
    (problem,) = caught.value.problems  # nothing about the keys of another kind
    assert problem.message.startswith("unknown ") and instead in (problem.hint or "")


def test_what_is_written_instead_of_rmsprop_is_a_spec() -> None:
    written = "{kind: torch, name: RMSprop, lr: 0.01"
    further = "alpha: 0.9, momentum: 0.5, centered: true, eps: 1.0e-7, decay: weights}"
    assert load_spec(SPEC, [f"optimizer={written}, {further}"]).spec.optimizer.lr == 0.01


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("search={kind: python:ray.tune.search.hyperopt.HyperOptSearch, trials: 2, space: {}}", "`optuna`"),
        ("trial_scheduler={kind: python:ray.tune.schedulers.PopulationBasedTraining}", "`asha`"),
    ],
)
def test_a_study_is_told_too(tmp_path: Path, written: str, instead: str) -> None:
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(SPEC))
    (tmp_path / "study.yaml").write_text("study: old\nbase: base.yaml\n")
    with pytest.raises(SpecError) as caught:
        load_study(tmp_path / "study.yaml", [written])
    (problem,) = caught.value.problems
    assert problem.hint is not None and "went" in problem.hint and instead in problem.hint


def test_a_spec_of_a_run_folder_has_no_folder_of_a_cache() -> None:
    assert load_spec({**SPEC, "data": {"source": "docstrings", "cache": None}}).spec.data.source == "docstrings"


@pytest.mark.parametrize("words", [("watch", "runs/mine"), ("run", "x.yaml", "--watch")])
def test_a_command_is_told_too(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(list(words)) == 2
    assert "`alray report RUN`" in " ".join(capsys.readouterr().err.split())
