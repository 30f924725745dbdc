"""What Ray Tune is asked for: the resources of a trial, and halving among the trials of one point. Starts no Ray."""

from __future__ import annotations

import errno
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from alray.config.sections.run import StopAt
from alray.config.study.section import Asha
from alray.core.errors import DiskFault
from alray.runtime.runner.engines import TrialEngine
from alray.studies.trial import _Listening
from alray.studies.tuning import NUMBER, AshaPerPoint, TrialListener, _silent, _Watch, trial_resources

from .conftest import evaluation

if TYPE_CHECKING:
    from alray.planning.prediction.plan import Plan


@pytest.mark.parametrize("stages", range(1, 9))
def test_a_trial_asks_for_its_stages_and_for_nothing_else(load_small: Any, stages: int) -> None:
    spec = load_small(f"model.components.0.repeat={stages}", f"pipeline.stages={stages}").spec
    factory = trial_resources(spec)
    assert factory.bundles == [{"CPU": 1.0}] * stages
    # The one stage runs in the trial's process, which is in the first bundle; others have none.
    assert factory.head_bundle_is_empty == (stages > 1)


def test_replicas_are_stages_too_and_labels_are_asked_for(load_small: Any) -> None:
    spec = load_small("replicas.count=3", "pipeline.stages=1", "resources.labels={zone: a}").spec
    factory = trial_resources(spec)
    assert factory.bundles == [{"CPU": 1.0}] * 3
    assert factory.to_placement_group.__self__._bound.kwargs == {"bundle_label_selector": [{"zone": "a"}] * 3}


def test_only_trials_of_one_point_are_compared() -> None:
    scheduler = AshaPerPoint(Asha(kind="asha", grace_samples=100, reduction_factor=2.0), lambda number: number // 4)
    trials = [SimpleNamespace(trial_id=str(number), custom_trial_name=f"{number:04d}") for number in range(8)]
    for trial in trials:
        scheduler.on_trial_add(None, trial)

    def said(number: int, samples: int, validation: float) -> str:
        return scheduler.on_trial_result(None, trials[number], {"samples": samples, "validation": validation})

    assert [said(number, 100, 0.9) for number in range(4)] == ["CONTINUE"] * 4
    assert said(4, 100, 0.2) == "CONTINUE"  # another point, where nobody is better yet
    assert said(5, 50, 0.1) == "CONTINUE"  # it has not seen enough samples
    assert said(5, 100, 0.1) == "STOP"
    assert said(6, 100, 0.3) == "CONTINUE"


def test_a_trial_goes_on_in_the_group_it_was_given_or_not_at_all(load_small: Any, monkeypatch: Any) -> None:
    given: list[int] = []
    whole = True

    def placement(bundles: list[dict[str, float]]) -> SimpleNamespace:
        given.append(len(bundles))
        return SimpleNamespace(is_whole=whole)

    monkeypatch.setattr("alray.runtime.cluster.placement.Placement.of_trial", placement)
    engine = TrialEngine(load_small("pipeline.stages=2").spec, print, Path("studies/mine"))
    assert engine.room([(2, 1), (1, 1)]) == (2, 1)
    whole = False  # a node was lost
    assert engine.room([(2, 1), (1, 1)]) is None
    assert given == [2, 2]


def test_a_full_disk_in_a_trial_stops_the_study_and_ends_no_trial(tmp_path: Path) -> None:
    """Every further trial would meet it: neither is this one started again, nor counted as failed."""
    told: list[Any] = []
    pickled = tmp_path / "error.pkl"
    pickled.write_bytes(pickle.dumps(DiskFault("the disk is full", file="/study")))
    trial = SimpleNamespace(config={NUMBER: 0}, custom_trial_name="0000", pickled_error_file=pickled, last_result={})
    for hook in ("on_trial_recover", "on_trial_error"):
        watch = _Watch(
            {0: 3}, TrialListener(lambda *said: told.append(said), lambda *said: told.append(said), told.append)
        )
        assert not watch.stop_all()
        getattr(watch, hook)(0, [trial], trial)
        assert watch.stop_all() and isinstance(watch.fault, DiskFault) and told == []


def test_a_full_disk_where_the_record_of_a_trial_is_written_stops_the_study() -> None:
    def ended(*said: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/study/trials/0000/trial.json")

    watch = _Watch({0: 0}, TrialListener(lambda *said: None, ended, lambda line: None))
    trial = SimpleNamespace(config={NUMBER: 0}, custom_trial_name="0000", last_result={"steps": 3})
    watch.on_trial_complete(0, [trial], trial)
    assert watch.stop_all() and isinstance(watch.fault, DiskFault)


def test_what_a_callback_prints_of_a_trial_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """What Ray Tune prints around it is not."""
    watch = _Watch({0: 0}, TrialListener(lambda *said: None, lambda *said: say("of mine"), lambda line: None))
    trial = SimpleNamespace(config={NUMBER: 0}, custom_trial_name="0000", last_result={"steps": 3})
    with _silent():
        say("of Tune")
        watch.on_trial_complete(0, [trial], trial)
        say("of Tune")
    assert capsys.readouterr().out == "of mine\n"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def test_the_evaluation_that_ends_a_trial_is_not_put_to_the_scheduler() -> None:
    """It may be the worst of its rung: a trial that reached its target is not stopped for that."""
    put: list[int] = []
    for stop_at in (None, StopAt(above=0.9), StopAt(patience=1)):
        listening = _Listening(lambda each: put.append(each.step), stop_at)
        listening.planned(cast("Plan", SimpleNamespace(total_steps=30)))
        for number, accuracy in ((10, 0.7), (20, 0.95), (25, 0.8), (30, 0.8)):
            listening.record(evaluation(number, float(number), accuracy))
        put.append(-1)
    assert put == [10, 20, 25, -1, 10, 25, -1, 10, 20, -1]
