"""The weights of the best evaluation are kept and used; patience ends a run where an unbroken run would end."""

from __future__ import annotations

from pathlib import Path

import pytest

from alray.api.reproduction import reproduce_run
from alray.core.errors import RequestError
from alray.core.run_folder.records import EvaluationRecord, effective, read
from alray.core.run_folder.store import manifests
from alray.inference.chosen_weights import RequestedWeights
from alray.inference.network import TrainedNetwork
from alray.inference.requests import evaluate
from alray.orchestrate import Options

from .conftest import Asked, Watching, Workshop
from .test_resume import stopping
from .test_same_bits import same

__all__ = ["stopping"]

OFTEN = ("run.evaluate_every=3 steps", "run.checkpoint={every: 5 steps, keep: 1}", "optimizer.lr=0.03", "seed=2")
FEW = (*OFTEN, "run.epochs=5")
"""35 mini-batches. The best evaluation is between two ordinary checkpoints and before the end."""


def evaluations(run_dir: Path) -> list[EvaluationRecord]:
    return [record for record in effective(read(run_dir / "records.jsonl")) if record.kind == "evaluation"]


def kept(run_dir: Path) -> list[int]:
    return [manifest["step"] for manifest in manifests(run_dir)]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose last weights are not its best."""
    run = Workshop(tmp_path_factory.mktemp("unbroken")).run(*FEW, "pipeline.stages=2")
    assert run.error is None
    return Path(run.summary.run_dir)


@pytest.mark.full
def test_the_best_weights_are_kept_and_can_be_used(unbroken: Path) -> None:
    """The checkpoint is of exactly the weights that were evaluated."""
    records = evaluations(unbroken)
    best = max(records, key=lambda record: record.validation)
    assert best.step % 5 and best.step < 35, "no ordinary checkpoint has these weights"
    assert kept(unbroken) == [best.step, 35]
    found = evaluate(TrainedNetwork(unbroken, allow_code=False, requested=RequestedWeights(best=True)))
    assert (found.weights.step, found.weights.which) == (best.step, "best")
    assert (found.scores[-1].validation, found.scores[-1].test) == (best.validation, best.test)
    last = evaluate(TrainedNetwork(unbroken, allow_code=False))
    assert (last.weights.step, last.weights.which) == (35, "last")
    assert last.scores[-1].validation == records[-1].validation < best.validation
    at_step = evaluate(TrainedNetwork(unbroken, allow_code=False, requested=RequestedWeights(step=best.step)))
    assert at_step.scores == found.scores
    with pytest.raises(RequestError, match=rf"no checkpoint after 20 mini-batches; there are .* {best.step}, 35"):
        evaluate(TrainedNetwork(unbroken, allow_code=False, requested=RequestedWeights(step=20)))


def test_the_best_survives_a_resume(workshop, unbroken, stopping) -> None:
    """Stopped after the best evaluation: the later ones are measured against it, and its weights stay."""
    best = max(evaluations(unbroken), key=lambda record: record.validation)
    workshop.run(*FEW, asked=stopping(best.step + 1))
    stopping(None)
    workshop.resume("pipeline.stages=4")
    assert kept(workshop.folder / "run") == [best.step, 35]
    assert evaluations(workshop.folder / "run")[-1].validation == evaluations(unbroken)[-1].validation


def test_without_checkpoints_the_best_is_not_kept_and_that_is_said(workshop, unbroken) -> None:
    run = workshop.run(*(value for value in FEW if "checkpoint" not in value), "run.checkpoint=null")
    assert run.summary.best.validation == max(record.validation for record in evaluations(unbroken))
    assert run.summary.best.checkpoint is None
    with pytest.raises(RequestError) as caught:
        evaluate(TrainedNetwork(Path(run.summary.run_dir), allow_code=False, requested=RequestedWeights(best=True)))
    message = str(caught.value)
    assert "were not kept; there are checkpoints after 35" in message
    assert "`run.checkpoint`" in message


PATIENT = (*OFTEN, "run.epochs=20", "run.stop_at={patience: 8}")


@pytest.mark.full
def test_patience_ends_a_run_at_the_same_mini_batch_after_an_interruption(workshop, unbroken, stopping) -> None:
    whole = workshop.run(*PATIENT, name="whole")
    records = evaluations(workshop.folder / "whole")
    best = max(records, key=lambda record: record.validation)
    end = best.step + 8 * 3
    assert (whole.summary.status, whole.summary.steps) == ("finished", end)
    assert end < 20 * 7, "it ended early"
    workshop.run(*PATIENT, asked=stopping(best.step + 4))
    stopping(None)
    broken = workshop.resume("pipeline.stages=3")
    same(broken, whole)
    assert broken.summary.steps == end
    before = (workshop.folder / "run/records.jsonl").read_bytes()
    same(workshop.resume(), whole)
    assert (workshop.folder / "run/records.jsonl").read_bytes() == before, "nothing is left to do"
    assert workshop.resume("run.stop_at=null", f"run.steps={end + 2}", "run.epochs=null").summary.steps == end + 2


def test_values_of_another_metric_are_not_compared(workshop) -> None:
    """An accuracy is higher than an F1 over all classes nearly always, so it would stay the best for ever."""
    bound = "run.stop_at={above: 0.01}"
    assert workshop.run(*FEW, bound).summary.steps == 3
    resumed = workshop.resume("task.metric=macro_f1", bound, allow_change=True).summary
    assert (resumed.steps, resumed.metric, resumed.best.step) == (6, "macro_f1", 6)


def test_a_reproduction_compares_evaluations_by_the_same_metric_alone(workshop) -> None:
    workshop.run("run.epochs=1")
    resumed = workshop.resume("task.metric=macro_f1", "run.epochs=2", allow_change=True).summary
    options = Options(run_dir=workshop.folder / "again", pages=False)
    _, found = reproduce_run(workshop.folder / "run", [], options, Watching(), Asked(), inline=True)
    assert found is not None and found.weights_sha256 == (resumed.weights_sha256,) * 2
    assert found.parted is None
    of_run = evaluations(workshop.folder / "run")
    assert 0 < found.evaluations == sum(each.metric == "macro_f1" for each in of_run) < len(of_run)
