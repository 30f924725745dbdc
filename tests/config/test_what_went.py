"""What earlier versions of alray had: a spec that still writes it is told what to write instead."""

from __future__ import annotations

import pytest

from alray.cli.main import execute
from alray.config.loading.load import load_spec
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
        ("optimizer.kind=rmsprop", "{kind: torch, name: RMSprop}"),
        ("lr_schedule={kind: step, every: 3 epochs}", "multi_step"),
        ("lr_schedule={kind: rising, first_factor: 0.1}", "`warmup_epochs`"),
        ("lr_schedule=one_cycle", "cosine"),
        ("run.trackers=[mlflow]", "pip install ./plugins/mlflow"),
        ("run.trackers=[wandb]", "pip install ./plugins/wandb"),
        ("data.cache=there", "XDG_CACHE_HOME"),
        ("method={kind: decoupled_information, head: auto}", "`pool`"),
        ("pipeline.messages={compression: top_k, error_feedback: true}", "`replicas.compression: top_k`"),
    ],
)
def test_it_is_told_what_to_write_instead(written: str, instead: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(SPEC, [written])
    (problem,) = caught.value.problems  # nothing about the keys of another kind
    assert problem.message.startswith("unknown ") and instead in (problem.hint or "")


def test_a_spec_of_a_run_folder_has_no_folder_of_a_cache() -> None:
    assert load_spec({**SPEC, "data": {"source": "docstrings", "cache": None}}).spec.data.source == "docstrings"


@pytest.mark.parametrize("words", [("watch", "runs/mine"), ("run", "x.yaml", "--watch")])
def test_a_command_is_told_too(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(list(words)) == 2
    assert "`alray report RUN`" in " ".join(capsys.readouterr().err.split())
