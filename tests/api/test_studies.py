"""`alray.study` and `load_study`, without a cluster; `tests/engine/test_studies_on_ray.py` runs one."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import alray
from alray.config.loading.yaml_text import write_yaml
from alray.config.objects import Objects
from alray.config.study.load import LoadedStudy, load_study
from alray.core.errors import CheckpointError, RequestError, SpecError, StageError
from alray.runtime.cluster.connect import Connection
from alray.studies.folder import StudyFolder
from alray.studies.records import TrialRecord
from alray.studies.report import StudyReport, write_report
from alray.studies.study import StudyOptions, _tell_of_loss
from alray.studies.trial import run_trial
from alray.studies.tuning import TrialListener

AXES = {"study": "rates", "base": "x.yaml", "axes": {"optimizer.lr": [1e-3, 1e-2]}}


@pytest.fixture
def base(tiny: dict[str, Any]) -> None:
    """The spec as `x.yaml`."""
    text = write_yaml({**tiny, "data": {**tiny["data"], "shape": [1, 4, 4]}})
    Path("x.yaml").write_text(text, encoding="utf-8")


@pytest.fixture
def without_trials(base: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study makes its folder and its report, and is then interrupted."""

    def make(loaded: LoadedStudy, begun: StudyFolder | None, options: StudyOptions, watcher: Any) -> StudyReport:
        watcher.note("a note")
        return write_report(begun or StudyFolder.make(loaded, options.study_dir, options.objects))

    monkeypatch.setattr("alray.studies.study._run", make)


def test_a_study_as_a_dict_that_is_interrupted(
    without_trials: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        KeyboardInterrupt, match=r'the study was stopped; alray.load_study\(".*"\).resume\(\) continues'
    ):
        alray.study(AXES, {"repeats": 2}, output="out")
    assert capsys.readouterr().err == "a note\n"
    study = alray.load_study("out")
    assert (study.summary.study, study.summary.trials, study.summary.status) == ("rates", 4, "interrupted")
    assert repr(study) == f"<alray study {Path('out').resolve()}: 0 trials have ended>"
    assert study.trials == study.runs == []
    assert study._repr_html_().startswith("<iframe srcdoc=")
    page, file = Path("out/report.html").read_text(encoding="utf-8"), Path("out/study.yaml").resolve()
    assert f"<code>alray study {file}</code>" in page and len(load_study(file).trials) == 4
    with pytest.raises(KeyboardInterrupt):
        study.resume(progress=False)
    Path("out/study.json").write_text("{}", encoding="utf-8")
    with pytest.raises(CheckpointError, match="not written by alray: "):
        study.table()
    assert study.report().trials == 4


@pytest.mark.parametrize("progress", [True, False])
def test_a_program_is_told_that_ray_died(
    base: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], progress: bool
) -> None:
    def make(loaded: LoadedStudy, begun: StudyFolder | None, options: StudyOptions, watcher: Any) -> StudyReport:
        folder = StudyFolder.make(loaded, options.study_dir, options.objects)
        _tell_of_loss(watcher, folder, StageError("a process of Ray on this machine ended: gcs_server"))
        return write_report(folder)

    monkeypatch.setattr("alray.studies.study._run", make)
    with pytest.raises(KeyboardInterrupt):
        alray.study(AXES, output="out", progress=progress)
    told = capsys.readouterr().err
    assert "gcs_server" in told and f'continue with `alray.load_study("{Path("out").resolve()}").resume()`' in told


def test_a_claim_in_percent_of_a_study_that_has_begun_is_mended_in_its_folder(without_trials: None) -> None:
    with pytest.raises(KeyboardInterrupt):
        alray.study({**AXES, "verdicts": [{"claim": "good", "figure": "test", "above": 0.9}]}, output="out")
    file = Path("out/study.yaml")
    file.write_text(file.read_text(encoding="utf-8").replace("0.9", "90"), encoding="utf-8")
    with pytest.raises(SpecError, match=r"study\.yaml") as caught:
        alray.load_study("out").resume()
    assert "edit its study.yaml" in str(caught.value.problems[0].hint)
    file.write_text(file.read_text(encoding="utf-8").replace("90", "0.8"), encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        alray.load_study("out").resume()


def test_objects_of_a_study_are_in_each_trial_and_compared_where_it_goes_on(without_trials: None) -> None:
    x, y = torch.randn(20, 6), torch.arange(20) % 3
    torch.manual_seed(0)
    net, other = (nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)) for _ in range(2))
    given = {"model": net, "data": (x, y)}
    with pytest.raises(KeyboardInterrupt, match=r"resume\((model=..., data=...|data=..., model=...)\)"):
        alray.study({**AXES, "set": {"data.batch_size": 5}}, output="out", progress=False, **given)
    study = alray.load_study("out", **given)
    begun = load_study("out/study.yaml")
    file = Path("out/study.yaml").resolve()
    page = html.unescape(Path("out/report.html").read_text(encoding="utf-8"))
    assert f"alray.study('{file}', data=..., model=...)" in page
    with pytest.raises(KeyboardInterrupt):
        alray.study(file, output="again", progress=False, **given)
    assert load_study("again/study.yaml").specs == begun.specs
    (point, _) = begun.specs
    assert (point.model.source, point.data.source, point.data.batch_size) == ("object:model", "object:data", 5)
    notes: list[str] = []
    study._of.require_same_objects(study.objects, notes.append)
    for wrong, said in (
        ({}, "no file has them"),
        ({**given, "model": other}, "`model`"),
        ({**given, "data": (x + 1, y)}, "`data`"),
    ):
        with pytest.raises(RequestError, match=said):
            study._of.require_same_objects(alray.load_study("out", **wrong).objects, notes.append)
    study._of.require_same_objects(
        Objects({**study.objects.values, "another": other}), notes.append
    )  # which no trial asks for
    assert notes == []
    file = Path("out/trials.json")
    trials = json.loads(file.read_text(encoding="utf-8"))
    older = {**trials["objects"], "model": "2 cpython-39 torch-1.0:" + "0" * 64}
    file.write_text(json.dumps({**trials, "objects": older}), encoding="utf-8")
    study._of.require_same_objects(alray.load_study("out", **{**given, "model": other}).objects, notes.append)
    assert [note.partition(":")[0] for note in notes] == ["whether this is the `model` of this study is not known"]


@pytest.fixture
def without_ray(base: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trials of a study run in this process, one after the other."""

    def one_after_the_other(orders: Sequence[Any], *, listener: TrialListener, **others: Any) -> None:
        for order, _ in orders:
            if not listener.stop_requested():
                listener.ended(order.trial.number, run_trial(order), 1)

    monkeypatch.setattr("alray.studies.study.connect", lambda *where: nullcontext(Connection(own=False, warnings=())))
    monkeypatch.setattr("alray.studies.study._require_room", lambda *trials: None)
    monkeypatch.setattr("alray.studies.study._require_shared", lambda *trials: None)
    monkeypatch.setattr("alray.studies.tuning.run_trials", one_after_the_other)


class First(alray.Callback):
    """Stops a study after a trial."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def on_trial(self, record: Any) -> None:
        self.heard.append(record.number)
        self.stop()


def test_a_study_of_objects_is_heard_stopped_and_resumed(without_ray: None, one_thread: None) -> None:
    """`tests/engine/test_studies_on_ray.py` does so on Ray."""
    x, y = torch.randn(40, 6), torch.arange(40) % 3
    net = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    cost = {"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}
    few = {"data.batch_size": 5, "run.epochs": 1, "pipeline.stages": 1, "pipeline.costs": [cost, cost]}
    stops, given = First(), {"model": net, "data": (x, y)}
    study = alray.study({**AXES, "set": few}, output="out", progress=False, callbacks=[stops], **given)
    assert (stops.heard, [each.number for each in study.trials]) == ([0], [0])
    again = alray.load_study("out", **given).resume(progress=False, callbacks=[stops])
    assert (stops.heard, again.summary.status) == ([0, 1], "finished")
    rates = [run.spec.optimizer.lr for run in again.runs]
    assert rates == [1e-3, 1e-2] and all(alray.reproduce(run, progress=False).same for run in again.runs)


def test_a_session_that_goes_on_at_another_start_says_so(
    without_ray: None, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        days = iter((27, 28, 29))

        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime(2026, 11, next(cls.days))

    written: list[TrialRecord] = []
    write = StudyFolder.write
    monkeypatch.setattr(StudyFolder, "write", lambda folder, record: (written.append(record), write(folder, record)))
    monkeypatch.setattr("alray.studies.study.datetime", Clock)
    few = {"run.steps": 1, "run.epochs": None, "pipeline.stages": 1}
    spec = {**AXES, "set": few, "sessions": 2, "measures": "times"}
    alray.study(spec, output="out", progress=False, callbacks=[First()])
    again = alray.load_study("out").resume(progress=False)
    assert [(each.session, str(each.began)[:10]) for each in again.trials] == [
        (0, "2026-11-27"),
        (0, "2026-11-28"),
        (1, "2026-11-29"),
        (1, "2026-11-29"),
    ]
    assert all(record.began for record in written)  # also what a trial writes, whose driver may die before it does


def test_a_wrong_study_is_told_whole(without_trials: None) -> None:
    with pytest.raises(SpecError) as caught:
        alray.study(AXES, {"max_concurrent": 0, "repeets": 1})
    told = str(caught.value)
    assert "overrides: repeets: unknown key; did you mean `repeats`?" in told
    assert "overrides: max_concurrent" in told


def test_a_folder_that_is_no_study(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="this is not a study folder"):
        alray.load_study(tmp_path)
