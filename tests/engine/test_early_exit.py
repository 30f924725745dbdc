"""Predictions that end at a lower depth: which samples leave where, and what a trial keeps of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from alray.config.study.load import load_study
from alray.inference.early_exit import RouteAnswers
from alray.studies.folder import StudyFolder
from alray.studies.trial import TrialOrder, run_trial
from tests.conftest import SMALL

STUDY = """\
study: exits
base: base.yaml
axes: {variant: {al: {}, bp: {method: backpropagation}}}
early_exit: {thresholds: [0.0, 0.5, 1.0]}
"""


def test_a_sample_leaves_at_the_first_depth_that_is_sure_enough() -> None:
    answers = RouteAnswers(
        confidence=torch.tensor([[0.9, 0.2, 0.4], [0.8, 0.9, 0.5], [0.7, 0.6, 0.3]]),
        right=torch.tensor([[False, True, True], [True, True, False], [True, False, True]]),
    )
    assert answers.where_sure(0.85).tolist() == [0, 1, 2]
    assert answers.accuracy(answers.where_sure(0.85)) == pytest.approx(2 / 3)
    assert answers.where_sure(0.4).tolist() == [0, 1, 0]
    assert answers.where_sure(1.0).tolist() == [2, 2, 2], "the deepest route always answers"
    assert [answers.accuracy(answers.all_at(route)) for route in range(3)] == pytest.approx([2 / 3, 2 / 3, 2 / 3])


@pytest.mark.full
def test_a_trial_keeps_the_exits_of_its_network_and_no_weights(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(SMALL, encoding="utf-8")
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    loaded = load_study(tmp_path / "study.yaml")
    folder = StudyFolder.make(loaded, tmp_path / "out")
    records = []
    for trial in loaded.trials:
        assert loaded.study.early_exit is not None
        order = TrialOrder(
            trial, folder, loaded.study.base, True, False, None, loaded.study.early_exit.thresholds, False
        )
        records.append(run_trial(order))
        assert not (folder.trial_dir(trial.number) / "checkpoints").exists()
    al, bp = (folder.record(trial.number) for trial in loaded.trials)
    assert al is not None and al.summary is not None and bp is not None
    assert [(each.depth, each.threshold) for each in al.exits[:2]] == [(1, None), (2, None)]
    measured = [(each.validation, each.test) for each in al.exits]
    assert measured[:2] == [(each.validation, each.test) for each in al.summary.accuracy_per_depth]
    assert [each.threshold for each in al.exits[2:]] == [0.0, 0.5, 1.0]
    assert (al.exits[2].depth, measured[2]) == (1.0, measured[0])
    assert (al.exits[4].depth, measured[4]) == (2.0, measured[1])
    assert al.exits[4].s_per_sample > al.exits[2].s_per_sample > 0
    assert [each.depth for each in bp.exits] == [2.0] * 4, "backpropagation has one route"
