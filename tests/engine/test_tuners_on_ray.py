"""Studies whose settings are proposed, and whose trials are stopped, paused and changed, by classes of Ray Tune or of
the user."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from alray.core.errors import UserCodeError
from alray.core.run_folder.records import EventRecord, read
from alray.orchestrate import Options, resume_run, run_spec
from alray.studies.folder import StudyFolder
from alray.studies.records import Segment, TrialRecord
from alray.studies.study import StudyOptions, Watcher, resume_study, run_study

from ..docs.pages import write_files
from .conftest import Asked, Watching, Workshop

pytestmark = pytest.mark.ray

QUIET = Watcher(lambda line: None, lambda progress: None)
SEARCH = "search: {kind: random, trials: 4, space: {optimizer.lr: {loguniform: [1.0e-4, 1.0e-1]}}}\n"
OWN_SEARCH = (
    'search: {kind: "python:searchers.Halving", first: 0.01, trials: 3, '
    "space: {optimizer.lr: {loguniform: [1.0e-4, 1.0e-1]}}}\n"
)
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
        if trial.custom_trial_name == "0001":
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


def alone(workshop: Workshop, record: TrialRecord) -> str:
    """The hash of the weights of a run, without a study, that has the settings of a trial one after another."""
    first, *others = record.history or [Segment(step=0, trial=record.number, values=record.values)]
    name = f"alone-{record.number}"
    given = {"seed": record.seed, **record.point, **first.values}
    overrides = [f"{key}={json.dumps(value)}" for key, value in given.items()]
    ends = [segment.step for segment in others] + [None]
    options = Options(inline=True, run_dir=workshop.folder / name, pages=False)
    done = run_spec(workshop.spec, overrides, replace(options, stop_after=ends.pop(0)), Watching(), Asked())
    for segment in others:
        changed = [f"{key}={json.dumps(value)}" for key, value in segment.values.items()]
        going_on = replace(options, stop_after=ends.pop(0))
        done = resume_run(options.run_dir, changed, going_on, Watching(), Asked(), allow_change=True)
    assert done.summary is not None and done.summary.weights_sha256 is not None
    return done.summary.weights_sha256


def pauses(folder: Path, number: int) -> int:
    """How often a trial went on."""
    records = read(folder / "trials" / f"{number:04d}" / "records.jsonl")
    return sum(isinstance(record, EventRecord) and record.event == "resumed" for record in records)


@pytest.mark.full  # about a minute
@pytest.mark.timeout(300)
def test_a_paused_trial_goes_on_to_the_weights_of_an_undisturbed_run(
    workshop: Workshop, local_ray: None, study: Callable[[str], Path]
) -> None:
    scheduler = 'trial_scheduler: {kind: "python:schedulers.Turns", at: 8}\n'
    stages = "axes: {pipeline.stages: [2]}\n"
    path = study(SEARCH.replace("trials: 4", "trials: 2") + stages + scheduler + "max_concurrent: 1\n")
    paused, stopped = run(path)
    out = path.parent / "out"
    assert (paused.status, pauses(out, paused.number)) == ("finished", 1)
    assert paused.summary is not None and paused.summary.weights_sha256 == alone(workshop, paused)
    assert paused.history == []
    assert (stopped.status, stopped.reason) == ("stopped", "the trial scheduler stopped it after 4 mini-batches")
    assert not list(out.glob("trials/*/checkpoints"))


@pytest.mark.full  # the test above has a trial that is paused and continues
@pytest.mark.timeout(300)
def test_a_trial_that_goes_on_from_another_says_so_and_can_be_done_again(
    workshop: Workshop, local_ray: None, study: Callable[[str], Path]
) -> None:
    scheduler = (
        'trial_scheduler: {kind: "python:schedulers.Seeded", time_attr: steps, perturbation_interval: 8, '
        "quantile_fraction: 0.5, synch: true}\n"
    )
    records = run(study(SEARCH.replace("trials: 4", "trials: 2") + scheduler))
    changed = [record for record in records if record.history]
    assert changed
    for record in records:
        assert record.status == "finished" and record.summary is not None
        assert record.summary.weights_sha256 == alone(workshop, record)
    for record in changed:
        assert record.history[-1].trial == record.number and record.history[-1].values == record.values
        assert any(segment.trial != record.number for segment in record.history)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_hyperband_of_ray_tune_halves_the_trials(
    workshop: Workshop, local_ray: None, study: Callable[[str], Path]
) -> None:
    scheduler = (
        'trial_scheduler: {kind: "python:ray.tune.schedulers.HyperBandScheduler", max_t: 4, reduction_factor: 2, '
        "stop_last_trials: false}\n"
    )
    records = run(study(SEARCH.replace("trials: 4", "trials: 8") + scheduler))
    statuses = {record.status for record in records}
    assert statuses == {"finished", "stopped"}
    assert sum(pauses(workshop.folder / "out", record.number) for record in records) > 0
    for record in records:
        if record.status == "finished":
            assert record.summary is not None and record.summary.weights_sha256 == alone(workshop, record)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_searcher_is_told_of_what_came_out_and_a_resume_asks_it_again(
    workshop: Workshop, local_ray: None, study: Callable[[str], Path]
) -> None:
    path = study(OWN_SEARCH + "max_concurrent: 1\n")
    rates = [record.values["optimizer.lr"] for record in run(path)]
    assert rates[0] == 0.01 and len(set(rates)) == 3
    resume_study(path.parent / "out", ["search.trials=5"], StudyOptions(), QUIET)
    more = [record.values["optimizer.lr"] for record in StudyFolder.open(path.parent / "out").records()]
    assert more[:3] == rates
    assert [record.values["optimizer.lr"] for record in run(path, "search.trials=5", name="whole")] == more


@pytest.mark.full
@pytest.mark.timeout(300)
def test_the_classes_of_the_docs_run(workshop: Workshop, local_ray: None, study: Callable[[str], Path]) -> None:
    assert write_files("docs/studies.md", workshop.folder) == ["my_search.py", "my_schedulers.py"]
    search = OWN_SEARCH.replace("searchers.Halving", "my_search.Halving")
    rates = [record.values["optimizer.lr"] for record in run(study(search))]
    assert rates == [0.005, 0.0025, 0.00125]
    scheduler = 'trial_scheduler: {kind: "python:my_schedulers.Pbt", time_attr: steps, perturbation_interval: 8}\n'
    records = run(study(SEARCH.replace("trials: 4", "trials: 2") + scheduler), name="scheduled")
    assert [record.status for record in records] == ["finished"] * 2


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", ["searcher", "scheduler"])
def test_an_error_of_the_users_class_ends_the_study_in_one_error(
    workshop: Workshop, local_ray: None, study: Callable[[str], Path], what: str
) -> None:
    text = OWN_SEARCH.replace("Halving", "Raising")
    if what == "scheduler":
        text = SEARCH + 'trial_scheduler: {kind: "python:schedulers.Raising"}\n'
    with pytest.raises(UserCodeError) as caught:
        run(study(text))
    (problem,) = caught.value.problems
    assert problem.file == str(workshop.folder / f"{what}s.py") and problem.line is not None
    assert problem.message.startswith(
        f"the {'trial ' * (what == 'scheduler')}{what} `python:{what}s.Raising` raised KeyError"
    )
