"""Studies whose settings are proposed, and whose trials are stopped, paused and changed, by classes of Ray Tune or of
the user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from alray.study.folder import StudyFolder
from alray.study.records import TrialRecord
from alray.study.study import StudyOptions, Watcher, resume_study, run_study

from .conftest import Workshop

QUIET = Watcher(lambda line: None, lambda progress: None)
SEARCH = "search: {kind: random, trials: 4, space: {optimizer.lr: {loguniform: [1.0e-4, 1.0e-1]}}}\n"
SEARCHER = """
from ray.tune.search import Searcher


class Halving(Searcher):
    \"\"\"Proposes half of the best rate so far.\"\"\"

    def __init__(self, first):
        super().__init__()
        self.first, self.outcomes, self.asked = first, [], {}

    def suggest(self, trial_id):
        rate = min(self.outcomes)[1] * (0.5 + 0.1 * len(self.outcomes)) if self.outcomes else self.first
        self.asked[trial_id] = rate
        return {"optimizer.lr": rate}

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.outcomes.append((result["cost"], self.asked[trial_id]))


class Raising(Halving):
    def suggest(self, trial_id):
        raise KeyError("no idea")
"""
SCHEDULER = """
from ray.tune.schedulers import FIFOScheduler, PopulationBasedTraining, TrialScheduler


class Turns(FIFOScheduler):
    \"\"\"Pauses each trial once, and stops the last one.\"\"\"

    def __init__(self, at):
        super().__init__()
        self.at, self.paused = at, set()

    def on_trial_result(self, tune_controller, trial, result):
        if trial.custom_trial_name == "0003":
            return TrialScheduler.STOP
        if result["steps"] >= self.at and trial not in self.paused:
            self.paused.add(trial)
            return TrialScheduler.PAUSE
        return TrialScheduler.CONTINUE


class Raising(FIFOScheduler):
    def on_trial_result(self, tune_controller, trial, result):
        return result["nothing"]


class Seeded(PopulationBasedTraining):
    def __init__(self, **fields):
        import random

        random.seed(1)
        super().__init__(hyperparam_mutations={"optimizer.lr": [0.0005, 0.001, 0.003, 0.006]}, **fields)
"""


@pytest.fixture
def study(workshop: Workshop) -> Callable[[str], Path]:
    """Writes a study of the workshop's spec, beside classes of its own."""
    (workshop.folder / "searchers.py").write_text(SEARCHER)
    (workshop.folder / "schedulers.py").write_text(SCHEDULER)

    def write(text: str) -> Path:
        path = workshop.folder / "study.yaml"
        path.write_text(f"study: tuned\nbase: tiny.yaml\n{text}", encoding="utf-8")
        return path

    return write


def run(path: Path, *overrides: str, name: str = "out") -> list[TrialRecord]:
    out = path.parent / name
    run_study(path, list(overrides), StudyOptions(study_dir=out), QUIET)
    assert not (out / "tune").exists()
    return StudyFolder.open(out).records()


def same_weights(workshop: Workshop, record: TrialRecord) -> bool:
    """Whether an undisturbed run of the overrides of a trial ends in its weights."""
    alone = workshop.run(*record.overrides, name=f"alone-{record.number}").summary
    return record.summary is not None and record.summary.weights_sha256 == alone.weights_sha256


def test_first_try(workshop: Workshop, local_ray: None, study: Callable[[str], Path]) -> None:
    path = study(
        'search: {kind: "python:searchers.Halving", first: 0.01, trials: 3, '
        "space: {optimizer.lr: {loguniform: [1.0e-4, 1.0e-1]}}}\nmax_concurrent: 1\n"
    )
    records = run(path)
    rates = [record.values["optimizer.lr"] for record in records]
    print(rates)
    resume_study(path.parent / "out", ["search.trials=5"], StudyOptions(), QUIET)
    records = StudyFolder.open(path.parent / "out").records()
    more = [record.values["optimizer.lr"] for record in records]
    print(more)
    assert more[:3] == rates
    whole = run(path, "search.trials=5", name="whole")
    assert [record.values["optimizer.lr"] for record in whole] == more


def test_second_try(workshop: Workshop, local_ray: None, study: Callable[[str], Path]) -> None:
    path = study(SEARCH + 'trial_scheduler: {kind: "python:schedulers.Turns", at: 8}\nmax_concurrent: 2\n')
    records = run(path)
    for record in records:
        print(record.number, record.status, record.reason, record.overrides)
        if record.status == "finished":
            assert same_weights(workshop, record)
