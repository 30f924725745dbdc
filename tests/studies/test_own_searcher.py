"""Settings that a searcher of the user proposes, with made-up outcomes. Starts no run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray.tune.search import Searcher

from alray.config.study.load import LoadedStudy, load_study
from alray.config.study.section import OwnSearch
from alray.core.errors import RunError, UserCodeError
from alray.studies.folder import StudyFolder
from alray.studies.own_classes import StudyClass
from alray.studies.own_searcher import OwnProposals

from .conftest import trial as made

STUDY = """\
study: searched
base: spec.yaml
repeats: 2
search:
  kind: "python:my_search.Mine"
  first: 0.5
  trials: 4
  space: {optimizer.lr: {loguniform: [1.0e-2, 1.0]}, data.batch_size: {choice: [5, 10]}}
"""
SEARCHER = """
import itertools
from ray.tune.search import Searcher

TOLD = []
STARTS = itertools.count()


class Mine(Searcher):
    def __init__(self, first):
        super().__init__()
        self.rate = first

    def set_search_properties(self, metric, mode, config, **spec):
        TOLD.append((metric, mode, sorted(config)))
        return True

    def suggest(self, trial_id):
        self.rate *= 0.9
        return {"optimizer.lr": self.rate, "data.batch_size": 5}

    def on_trial_complete(self, trial_id, result=None, error=False):
        TOLD.append((trial_id, result and result["cost"], error))
        self.rate *= 0.5 if result and result["cost"] < 0.5 else 1.0


class Moody(Mine):
    '''Answers otherwise at every start.'''

    def __init__(self, first):
        super().__init__(first / (1 + next(STARTS)))

    def add_evaluated_point(self, parameters, value, **others):
        TOLD.append((parameters["optimizer.lr"], value))


class Wide(Mine):
    def suggest(self, trial_id):
        return {"optimizer.lr": 2.0, "data.batch_size": 5}


class Raising(Mine):
    def suggest(self, trial_id):
        raise KeyError("no idea")
"""


@pytest.fixture
def proposals(
    load_small: Callable[..., Any], tmp_path: Path
) -> Callable[..., tuple[LoadedStudy, StudyFolder, OwnProposals, list[Any]]]:
    """A study whose searcher is a class of this name, its folder, what proposes its settings, and what it was told."""
    load_small().file.rename(tmp_path / "spec.yaml")
    (tmp_path / "my_search.py").write_text(SEARCHER, encoding="utf-8")
    folders: dict[str, StudyFolder] = {}

    def begin(name: str = "Mine", folder: str = "a") -> tuple[LoadedStudy, StudyFolder, OwnProposals, list[Any]]:
        (tmp_path / "study.yaml").write_text(STUDY.replace("Mine", name), encoding="utf-8")
        loaded = load_study(tmp_path / "study.yaml")
        if folder not in folders:
            folders[folder] = StudyFolder.make(loaded, tmp_path / folder)
        section = loaded.study.search
        assert isinstance(section, OwnSearch)
        own = StudyClass.load(section, Searcher, what="the searcher", key="search.kind", root=tmp_path, allow=False)
        told: list[Any] = vars(__import__("my_search"))["TOLD"]
        told.clear()
        return loaded, folders[folder], OwnProposals(loaded, folders[folder], own), told

    return begin


def search(begun: Any, numbers: range) -> list[float]:
    """Run these trials one after another; gives their rates."""
    loaded, folder, proposals, _ = begun
    rates = []
    for trial in (loaded.trials[number] for number in numbers):
        settled = proposals.with_settings(trial)
        rates.append(settled.values["optimizer.lr"])
        place = {"index": trial.index, "seed": trial.seed, "values": dict(settled.values)}
        folder.write(made(trial.number, {}, validation=0.3 + 0.1 * trial.number, **place))
    return rates


def test_a_killed_search_goes_on_as_if_it_had_not_been(proposals: Callable[..., Any]) -> None:
    whole = proposals(folder="a")
    rates = search(whole, range(8))
    assert rates[::2] == rates[1::2] and len(set(rates)) == 4  # the seeds of one setting
    assert rates[2] == 0.9 * rates[0] and rates[6] < 0.5 * rates[4]  # it hears of the mean cost of a setting
    heard = [*whole[3]]
    assert heard[0] == ("cost", "min", ["data.batch_size", "optimizer.lr"])
    assert search(proposals(folder="b"), range(5)) == rates[:5]  # killed between the two seeds of a setting
    again = proposals(folder="b")
    assert search(again, range(5, 8)) == rates[5:]
    assert again[3] == heard


def test_recorded_settings_stay_where_a_searcher_now_answers_otherwise(proposals: Callable[..., Any]) -> None:
    first = search(proposals("Moody"), range(4))
    begun = proposals("Moody")
    assert search(begun, range(4, 6))[0] not in first
    assert begun[3][1:] == [
        (first[0], pytest.approx(0.65)),
        ("0000", None, True),
        (first[2], pytest.approx(0.45)),
        ("0001", None, True),
    ]
    records = begun[1].records()
    assert [record.values["optimizer.lr"] for record in records[:4]] == first


def test_what_is_no_proposal_is_told_by_its_key_or_its_line(proposals: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"search\.kind: .* proposed 2\.0 for optimizer\.lr, which is outside"):
        search(proposals("Wide"), range(1))
    with pytest.raises(UserCodeError, match=r"the searcher `.*` raised KeyError in suggest") as caught:
        search(proposals("Raising"), range(1))
    (problem,) = caught.value.problems
    assert problem.file == str(tmp_path / "my_search.py")
    assert problem.line == SEARCHER.splitlines().index('        raise KeyError("no idea")') + 1
