"""Settings that Optuna proposes, with made-up outcomes. Starts no run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from alray.config.study.load import LoadedStudy, load_study
from alray.config.study.space import Distribution
from alray.config.study.trials import Trial
from alray.studies.folder import StudyFolder
from alray.studies.proposals import Proposals, cost_of, proposed
from alray.studies.records import TrialRecord

from .conftest import trial as made

STUDY = """\
study: searched
base: spec.yaml
axes: {optimizer.kind: [adam, sgd]}
repeats: 2
search:
  kind: optuna
  trials: 30
  space: {optimizer.lr: {loguniform: [1.0e-4, 1.0]}}
"""
EVERY_KIND = {
    "choice": {"choice": [[1, 2], "b", None]},
    "uniform": {"uniform": [2, 4]},
    "loguniform": {"loguniform": [1e-4, 1.0]},
    "one_minus_loguniform": {"one_minus_loguniform": [0.0, 0.999]},
    "integers": {"integers": [1, 4]},
}


@pytest.fixture
def loaded(load_small: Callable[..., Any], tmp_path: Path) -> LoadedStudy:
    load_small().file.rename(tmp_path / "spec.yaml")
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    return load_study(tmp_path / "study.yaml")


def run(trial: Trial) -> TrialRecord:
    """The best rate is 0.01."""
    distance = abs(math.log10(trial.values["optimizer.lr"]) + 2)
    return made(
        trial.number,
        dict(trial.point.values),
        index=trial.index,
        seed=trial.seed,
        values=dict(trial.values),
        validation=0.9 - 0.2 * distance - 0.01 * (trial.seed % 2),
    )


def searched(loaded: LoadedStudy, folder: StudyFolder, fresh: Callable[[int], bool]) -> Iterator[Trial]:
    """Run the trials one after another. fresh: whether another process goes on with the trial of this number."""
    proposals = Proposals(loaded, folder)
    for trial in loaded.trials:
        if fresh(trial.number):
            proposals = Proposals(loaded, folder)
        settled = proposals.with_settings(trial)
        folder.write(run(settled))
        yield settled


@pytest.mark.full
def test_a_killed_search_goes_on_as_if_it_had_not_been(loaded: LoadedStudy, tmp_path: Path) -> None:
    undisturbed = list(searched(loaded, StudyFolder.make(loaded, tmp_path / "a"), lambda number: False))
    killed = list(searched(loaded, StudyFolder.make(loaded, tmp_path / "b"), lambda number: number % 3 == 0))
    assert killed == undisturbed
    assert all(f"optimizer.lr={trial.values['optimizer.lr']}" in trial.overrides for trial in killed)
    rates = [trial.values["optimizer.lr"] for trial in killed]
    assert rates[::2] == rates[1::2]  # the seeds of one setting
    assert len(set(rates)) == 2 * 30  # anew at every point


def test_later_settings_are_better(loaded: LoadedStudy, tmp_path: Path) -> None:
    folder = StudyFolder.make(loaded, tmp_path / "a")
    costs = [cost_of(run(trial), 0) for trial in searched(loaded, folder, lambda number: False)]
    for point in (costs[:60], costs[60:]):
        assert median(point[20:]) < median(point[:20])  # the first ten settings are random


def test_settings_that_are_being_tried_are_not_proposed_again(loaded: LoadedStudy, tmp_path: Path) -> None:
    proposals = Proposals(loaded, StudyFolder.make(loaded, tmp_path / "a"))
    at_once = [proposals.with_settings(trial) for trial in loaded.trials[:8]]
    assert len({trial.values["optimizer.lr"] for trial in at_once}) == 4
    assert proposals.with_settings(loaded.trials[0]) == at_once[0]


@pytest.mark.parametrize(
    ("fields", "budget", "cost"),
    [
        ({"steps": 7, "validation": 0.2}, 100, 7.0),
        ({"validation": 0.8}, 100, pytest.approx(100.2)),
        ({"validation": 0.8, "status": "diverged"}, 100, 101.0),
        ({"validation": 0.8}, 0, pytest.approx(0.2)),  # without a target
        ({"validation": None}, 0, 1.0),
        ({"summary": None, "status": "diverged"}, 0, 1.0),
    ],
)
def test_what_a_trial_costs(fields: dict[str, Any], budget: int, cost: float) -> None:
    assert cost_of(made(0, {}, **fields), budget) == cost


@pytest.mark.parametrize(("metric", "sign"), [("score", -1), ("cost", 1), ("mean_squared_error", 1), ("r2", -1)])
def test_better_values_of_a_metric_without_bounds_cost_less_and_none_as_much_as_divergence(
    metric: str, sign: int
) -> None:
    values = (-1000.0, -2.0, -0.5, 0.0, 0.5, 1.99, 2.0, 30.0, 1000.0)
    ran = {"metric": metric}
    costs = [cost_of(made(0, {}, validation=value, ran=ran), 0) for value in values]
    assert sorted(costs, key=lambda cost: sign * cost) == costs and len(set(costs)) == len(costs)
    assert max(costs) < cost_of(made(0, {}, ran=ran, status="diverged"), 0)


def test_every_outcome_and_every_distribution_can_be_told() -> None:
    space = {key: Distribution.model_validate(kind) for key, kind in EVERY_KIND.items()}
    tried: list[Any] = []
    for seed in range(15):
        values = proposed(space, tried, target=True, seed=seed)
        assert 0 <= values["one_minus_loguniform"] <= 0.999 and 1e-4 <= values["loguniform"] <= 1
        assert values["integers"] in range(1, 5) and values["choice"] in EVERY_KIND["choice"]["choice"]
        outcome = [
            [made(0, {}, steps=5)],
            [made(0, {}, status="diverged")],
            [made(0, {}, status="failed", summary=None)],
            [made(0, {}, status="stopped", summary=None)],
            [made(0, {}, validation=0.3), None],  # one seed has not ended
        ][seed % 5]
        tried.append((values, outcome))
    again = proposed(space, tried, target=True, seed=15)
    assert again == proposed(space, tried, target=True, seed=15) != proposed(space, tried, target=True, seed=16)
