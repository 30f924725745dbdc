"""Studies among the runs of a folder, and their trials."""

from __future__ import annotations

import math
from pathlib import Path

from alray.studies.listing import Listed, notes_on, ordered, rows_in, table_of

from .conftest import results, study_folder, trial


def test_a_study_is_a_row_and_its_trials_are_rows_of_its_folder(tmp_path: Path) -> None:
    made = study_folder(results([trial(number, {"seed": number}) for number in range(3)]), tmp_path / "made-up")
    (row,) = rows_in([tmp_path])
    assert (row.kind, row.name, row.state, row.trials, row.ended) == ("study", "made-up", "finished", 3, 3)
    (made.trial_dir(2) / "trial.json").unlink()
    (row,) = rows_in([tmp_path])
    assert table_of([row]).rows[0][1:5] == ("study", "", "", "unfinished 2 of 3")
    assert notes_on([row]) == ["0 runs, 1 study"]
    (made.trial_dir(1) / "spec.yaml").write_text("name: a", encoding="utf-8")
    assert [(Path(row.folder).name, row.state) for row in rows_in([made.path])] == [("0001", "unfinished")]
    (made.path / "study.yaml").unlink()
    (row,) = rows_in([tmp_path])
    assert (row.kind, row.state) == ("study", "damaged")


def test_a_study_of_which_every_trial_failed_is_failed(tmp_path: Path) -> None:
    for name, statuses in {"all": ["failed", "failed"], "one": ["failed", "finished"]}.items():
        trials = [trial(number, {"seed": number}, status=status) for number, status in enumerate(statuses)]
        study_folder(results(trials), tmp_path / name)
    states = {Path(row.folder).name: row.state for row in rows_in([tmp_path])}
    assert states == {"all": "failed", "one": "finished"}


def test_a_metric_that_is_not_a_number_comes_last() -> None:
    values = {"a": 0.3, "b": math.nan, "c": 0.9, "d": None, "e": 0.5}
    rows = [Listed(name, "run", "finished", metric="r2", validation=value) for name, value in values.items()]
    assert [row.folder for row in ordered(rows, "validation")] == ["c", "e", "a", "b", "d"]
