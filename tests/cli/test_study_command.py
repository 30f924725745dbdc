"""study and the report of a study, without Ray; `tests/engine/test_studies_on_ray.py` runs them."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alray.config.study.load import load_study
from alray.core.errors import RequestError
from alray.core.storage.lock import locked
from alray.data import cache
from alray.studies.folder import StudyFolder
from alray.studies.report import write_report
from alray.studies.trial import TrialOrder, record_of, run_trial

from ..studies.conftest import results, study_folder
from ..studies.conftest import trial as made

STUDY = """\
study: scaling
base: x.yaml
axes: {pipeline.stages: [1, 3]}
repeats: 2
"""


@pytest.fixture
def study(spec: Path) -> Path:
    """A study of the tiny spec, in the current folder."""
    path = Path("study.yaml")
    path.write_text(STUDY, encoding="utf-8")
    return path


def in_this_process(folder: StudyFolder, study: Path, *numbers: int, target: float | None = None) -> None:
    """Run some trials of a study, each inline."""
    loaded = load_study(study)
    for number in numbers:
        order = TrialOrder(loaded.trials[number], folder, loaded.study.base, True, False, target, False)
        run_trial(order)


@pytest.mark.full
def test_a_trial_in_a_used_process_is_the_run_of_its_overrides(
    alray: Callable[..., Any], study: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_cache", {})  # as in a process of trials
    folder = StudyFolder.make(load_study(study), Path("out"))
    in_this_process(folder, study, 0, 1, 2)
    monkeypatch.setattr(cache, "_cache", None)
    for record in folder.records():
        alone = alray("run", "x.yaml", *record.overrides, "--inline", "--json", "--output", f"{record.number}").json
        assert record.summary is not None and record.summary.weights_sha256 == alone["weights_sha256"]


def test_a_dry_run_lists_points_and_says_no_time(alray: Callable[..., Any], study: Path) -> None:
    said = alray("study", study, "--dry-run")
    assert said.code == 0
    head, first, second, total = [line.split() for line in said.out.splitlines()]
    assert head[:3] == ["point", "trials", "stages"]
    assert first == ["pipeline.stages=1", "2", "1", "1", "1", "CPU"]
    assert second == ["pipeline.stages=3", "2", "3", "1", "3", "CPU"]
    assert total == ["2", "points,", "4", "trials"]
    answer = alray("study", study, "repeats=1", "--dry-run", "--json").json
    assert [trial["label"] for trial in answer["trials"]] == ["pipeline.stages=1, seed=0", "pipeline.stages=3, seed=0"]
    assert answer["points"][1]["resources"] == {"CPU": 3.0}
    assert not Path("studies").exists()


def test_a_dry_run_of_a_resume_lists_what_is_left_and_refuses_what_a_resume_does(
    alray: Callable[..., Any], study: Path
) -> None:
    loaded = load_study(study)
    folder = StudyFolder.make(loaded, Path("out"))
    for trial in loaded.trials[:3]:
        folder.write(record_of(trial, "lost" if trial.number == 1 else "diverged", "why"))
    left = alray("study", "--resume", "out", "--dry-run", "--json").json
    assert [each["number"] for each in left["trials"]] == [1, 3]
    assert [each["trials"] for each in left["points"]] == [1, 1]
    said = alray("study", "--resume", "out", "repeats=3", "--dry-run").out
    assert re.findall(r"^(pipeline\S+)\s+(\d)", said, re.M) == [("pipeline.stages=1", "2"), ("pipeline.stages=3", "2")]
    assert "4 trials left" in said and len(folder.begun.trials) == 4
    for trial in loaded.trials[:2]:
        folder.write(record_of(trial, "diverged", "why"))
    assert "pipeline.stages=1" not in alray("study", "--resume", "out", "--dry-run").out
    edited = alray("study", "--resume", "out", "set.run.steps=30", "--dry-run")
    assert "this is no longer the study that began here: `set` changed" in edited.errors


@pytest.mark.full  # tests/config/test_studies.py has points that are skipped
def test_points_that_are_skipped_are_named_in_the_listing_and_in_the_report(
    alray: Callable[..., Any], study: Path, one_thread: None
) -> None:
    """The tiny spec has three components."""
    study.write_text(
        "study: a\nbase: x.yaml\nset: {pipeline.costs: null}\nimpossible: skip\naxes:\n  pipeline.stages: [1, 2]\n"
        "  variant: {all: {}, two: {model.components: [{block: vgg, channels: [2]}, {block: vgg, channels: [2]}]}}\n"
    )
    assert alray("study", study, "--dry-run", "--json").json["skipped"] == []
    wider = ("axes.pipeline.stages=[1,3]",)
    assert "pipeline.stages=3, variant=two" in alray("study", study, *wider, "--dry-run").out
    (skipped,) = alray("study", study, *wider, "--dry-run", "--json").json["skipped"]
    assert skipped["point"] == "pipeline.stages=3, variant=two" and "only 2 components" in skipped["reason"]
    assert "3 trials; 1 point skipped" in alray("validate", study, *wider).out
    folder = StudyFolder.make(load_study(study, wider), Path("out"))
    for number in range(3):
        loaded = load_study(study, wider)
        run_trial(TrialOrder(loaded.trials[number], folder, loaded.study.base, True, False, None, False))
    said = alray("study", "--resume", "out", "--json")
    (told,) = said.json["skipped"]
    assert told["point"] == {"pipeline.stages": 3, "variant": "two"} and len(said.json["rows"]) == 3
    for name in ("report.html", "report.md", "tables/skipped_points.csv"):
        assert "pipeline.stages=3, variant=two" in Path("out", name).read_text(encoding="utf-8"), name


def test_sessions_are_added_on_another_day(study: Path) -> None:
    study.write_text(study.read_text(encoding="utf-8") + "sessions: 2\n", encoding="utf-8")
    begun = load_study(study)
    grown = StudyFolder.make(begun, Path("out")).grown(load_study(Path("out/study.yaml"), ["sessions=4"]))
    assert grown.trials[:8] == begun.trials and [each.number for each in grown.trials] == list(range(16))
    turns = [(each.session, each.seed, each.point.number) for each in grown.trials[8:]]
    assert turns == [(session, *turn) for session in (2, 3) for turn in ((0, 0), (0, 1), (1, 1), (1, 0))]


def test_wrong_requests_are_refused(alray: Callable[..., Any], study: Path, spec: Path) -> None:
    assert alray("study").code == 2
    assert alray("study", study, "--resume", "there").code == 2
    for words, place, command in (
        (("study", spec), "x.yaml: ", "`alray run`\n"),
        (("run", study), "study.yaml:1: study: ", "`alray study`\n"),
    ):
        refused = alray(*words).errors
        assert place in refused and refused.endswith(command), refused
    assert alray("study", study, "repeats=none").errors.startswith("command line: repeats: expected an integer")
    assert alray("study", "--resume", ".").errors.startswith(".: this is not a study folder: ")
    for asked in ((study, "--output"), ("--resume",)):
        assert "a study needs a folder on a disk" in alray("study", *asked, "s3://bucket/x").errors
    assert alray("study", "--resume", ".", "--output", "there").errors.startswith("--output: this is for a new study")
    Path("full").mkdir()
    shutil.copy(spec, "full")
    assert alray("study", study, "--output", "full", "--dry-run").code == 0


@pytest.mark.full
def test_trials_are_results_whether_they_succeed_or_fail(
    alray: Callable[..., Any], study: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    loaded = load_study(study)
    folder = StudyFolder.make(loaded, Path("out"))
    in_this_process(folder, study, 0, 1, 2)
    text = Path("x.yaml").read_text()
    broken = loaded.trials[3]
    run_trial(TrialOrder(broken, folder, Path("nothing.yaml"), True, False, None, False))
    records = folder.records()
    assert [record.status for record in records] == ["finished", "finished", "finished", "failed"]
    assert records[0].summary is not None and records[1].summary is not None
    assert records[0].summary.seed == 0 and records[1].summary.seed == 1
    assert records[0].summary.weights_sha256 != records[1].summary.weights_sha256
    assert records[3].reason is not None and "does not exist" in records[3].reason
    assert not list(Path("out/trials").glob("*/checkpoints"))

    said = alray("report", "out")
    assert (said.code, said.err) == (0, "")
    assert "1 finished, 1 failed" in said.out
    heading = said.out.splitlines()[0]
    assert heading.endswith(", 4 trials, 1 failed") and "finished" not in heading
    chosen = alray("report", "out", "--columns", "trials,validation")
    assert chosen.code == 0 and Path("out/tables/points.tex").read_text().splitlines()[0] == r"\begin{tabular}{rr}"
    refused = alray("report", "out", "--columns", "accuracy", "--json")
    assert (refused.code, refused.json["errors"][0]["key"]) == (2, "--columns")
    answer = alray("report", "out", "--json").json
    assert (answer["status"], answer["trials"], answer["statuses"]) == ("finished", 4, {"finished": 3, "failed": 1})
    assert {path.name for path in Path("out").iterdir()} >= {"report.html", "study.json", "figures", "tables"}
    assert "does not exist" in Path("out/report.html").read_text()
    again = alray("study", "--resume", "out")  # nothing is left to run, so no Ray is started
    assert (again.code, again.out) == (1, said.out)
    assert again.err.splitlines()[-1].startswith("1 of 4 trials failed")
    assert text == Path("x.yaml").read_text()


def test_a_study_whose_trials_have_all_ended_takes_further_claims(alray: Callable[..., Any], study: Path) -> None:
    loaded = load_study(study)
    folder = StudyFolder.make(loaded, Path("out"))
    for trial in loaded.trials:
        folder.write(record_of(trial, "diverged", "the losses grew"))
    claim = "[{claim: it learns, figure: validation, above: 0.0}]"
    said = alray("study", "--resume", "out", f"verdicts={claim}", "--json").json
    assert (
        [each["claim"] for each in said["verdicts"]] == [each.claim for each in folder.study.verdicts] == ["it learns"]
    )


def test_a_resume_runs_what_has_not_ended_of_the_same_study(
    alray: Callable[..., Any], study: Path, one_thread: None
) -> None:
    loaded = load_study(study)
    folder = StudyFolder.make(loaded, Path("out"))
    in_this_process(folder, study, 0)
    before = folder.record(0)
    (folder.trial_dir(1) / "logs").mkdir(parents=True)  # it was killed in the middle
    (folder.trial_dir(1) / "summary.json").write_text("{")
    in_this_process(folder, study, 1)
    assert folder.record(0) == before
    assert folder.record(1) is not None
    assert folder.grown(loaded) == loaded
    Path("x.yaml").write_text(Path("x.yaml").read_text().replace("label_dim: 4", "label_dim: 5"))
    said = alray("study", "--resume", "out")
    assert said.code == 2
    assert "the specs of the trials are no longer those that the study began with" in said.err


@pytest.mark.few
@pytest.mark.parametrize("kind", ["random", "optuna"])
def test_a_study_grows_by_trials_that_come_after_those_it_has(study: Path, kind: str) -> None:
    space = "space: {optimizer.lr: {loguniform: [1.0e-4, 1.0]}}"
    study.write_text(f"{STUDY}search: {{kind: {kind}, trials: 2, {space}}}\n", encoding="utf-8")
    loaded = load_study(study)
    folder = StudyFolder.make(loaded, Path("out"))
    for growth in (["search.trials=3"], ["repeats=3", "max_concurrent=1", "doubts=[no search]"]):
        before = folder.begun.trials
        grown = folder.grown(load_study(folder.path / "study.yaml", growth))
        folder.keep(grown)
        assert [trial.number for trial in grown.trials] == list(range(len(grown.trials)))
        assert [trial.overrides for trial in folder.begun.trials[: len(before)]] == [each.overrides for each in before]
        assert len(grown.trials) > len(before)
    assert len(grown.trials) == 2 * 3 * 3
    assert [(trial.index, trial.seed) for trial in grown.trials[:4]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert folder.grown(load_study(folder.path / "study.yaml")) == grown
    for shrunk in ("search.trials=2", "repeats=1"):
        with pytest.raises(RequestError, match="trials that the study began with are no longer in it"):
            folder.grown(load_study(folder.path / "study.yaml", [shrunk]))
    with pytest.raises(RequestError, match="no longer the study that began here: `axes` changed"):
        folder.grown(load_study(folder.path / "study.yaml", ["axes.pipeline.stages=[1,2,3]"]))


def test_code_that_was_edited_since_a_study_began_is_refused(
    alray: Callable[..., Any], study: Path, one_thread: None
) -> None:
    """Two seeds of a point would be two networks, also where the user allows the code. Where nothing is left to run, it
    does no harm."""
    own = "search: {kind: optuna, trials: 1, space: {model.components.2: {choice: [{block: 'python:mine.Own'}]}}}"
    study.write_text(f"study: own\nbase: x.yaml\n{own}\n", encoding="utf-8")
    text = "from torch import nn\nclass Own(nn.Flatten): ...\n"
    Path("mine.py").write_text(text)
    folder = StudyFolder.make(load_study(study), Path("out"))
    Path("mine.py").write_text(text.replace("Flatten", "Tanh"))
    refused = "the code is no longer that which the study began with: mine.py; restore these files"
    assert refused in alray("study", "--resume", "out", "--allow-code").errors
    assert refused in alray("study", "--resume", "out", "repeats=2", "--allow-code").errors
    folder.write(record_of(load_study(study).trials[0], "failed", "it had no room"))
    assert "the code is no longer" not in alray("study", "--resume", "out", "max_concurrent=1", "--allow-code").errors
    assert refused in alray("study", "--resume", "out", "repeats=2", "--allow-code").errors
    Path("mine.py").write_text(text)
    loaded = load_study(study, ["repeats=2"])
    folder.require_same_code(loaded)
    folder.keep(folder.grown(loaded))
    assert folder.begun.code == {"mine.py": hashlib.sha256(text.encode()).hexdigest()}


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("1.0", "0.5", "search"),
        ("set: {}", "set: {run.epochs: 7}", "set"),
    ],
)
def test_an_edited_study_is_refused_by_its_own_name_with_the_key_that_changed(
    alray: Callable[..., Any], study: Path, old: str, new: str, key: str
) -> None:
    search = "search: {kind: optuna, trials: 2, space: {optimizer.lr: {loguniform: [1.0e-4, 1.0]}}}\n"
    study.write_text(STUDY + search, encoding="utf-8")
    StudyFolder.make(load_study(study), Path("out"))
    kept = Path("out/study.yaml")
    assert kept.read_text().count(old) == 1
    kept.write_text(kept.read_text().replace(old, new))
    said = alray("study", "--resume", "out")
    assert said.code == 2
    assert "out/study.yaml: this is no longer the study that began here: `" + f"{key}` changed" in said.err


def test_a_study_continues_with_other_claims(study: Path) -> None:
    study.write_text(f"{STUDY}verdicts: [{{claim: quick, figure: step_time_s, below: 1.0}}]\n", encoding="utf-8")
    loaded = load_study(study)
    folder = StudyFolder.make(loaded, Path("out"))
    kept = Path("out/study.yaml")
    kept.write_text(kept.read_text().replace("claim: quick", "claim: fast"))
    edited = load_study(kept)
    assert edited.study.verdicts[0].claim == "fast"
    assert folder.grown(edited).trials == loaded.trials


def test_a_terminal_says_of_claims_what_the_report_says(alray: Callable[..., Any], tmp_path: Path) -> None:
    trials = [made(seed, {}, seed=seed, step_time_s=0.01 + 0.001 * seed) for seed in range(3)]
    claims = [{"claim": "it is quick", "figure": "step_time_s", "below": 1.0}]
    folder = study_folder(results(trials, verdicts=claims), tmp_path / "out").path
    said = alray("report", folder)
    assert "not decided in fewer than three days: it is quick" in said.out
    assert "| it is quick | not decided in fewer than three days |" in (folder / "report.md").read_text(
        encoding="utf-8"
    )


def test_a_report_names_claims_that_are_later_than_its_study(study: Path) -> None:
    study.write_text(f"{STUDY}verdicts: [{{claim: quick, figure: step_time_s, below: 1.0}}]\n", encoding="utf-8")
    folder, kept = StudyFolder.make(load_study(study), Path("out")), Path("out/study.yaml")
    kept.write_text(kept.read_text().replace("claim: quick", "claim: fast"))
    assert write_report(folder).summary.warnings == []  # other words for the same question

    def warnings(bound: str, *overrides: str) -> str:
        kept.write_text(re.sub("below: .*", f"below: {bound}", kept.read_text()))
        folder.keep(folder.grown(load_study(kept, overrides)))
        return " ".join(write_report(folder).summary.warnings)

    assert warnings("2.0") == ""  # no trial has ended
    folder.write(record_of(load_study(study).trials[0], "failed", "it had no room"))
    for overrides in ([], ["repeats=3"]):
        said = warnings("3.0", *overrides)
        assert "later than the first trial of the study: fast." in said and "no longer asks these claims" in said
    with pytest.raises(RequestError, match="trials that the study began with are no longer in it"):
        folder.grown(load_study(kept, ["repeats=1"]))


@pytest.mark.full
def test_a_target_ends_a_trial_and_divergence_is_a_result(
    alray: Callable[..., Any], study: Path, one_thread: None
) -> None:
    study.write_text(
        "study: a\nbase: x.yaml\nset: {run.evaluate_every: 1 steps}\n"
        "axes: {variant: {easy: {}, wild: {optimizer: {kind: sgd, lr: 1e30}, run.stop_at: null}}}\n"
    )
    loaded = load_study(study)
    folder = StudyFolder.make(loaded, Path("out"))
    in_this_process(folder, study, 0, target=0.0)
    in_this_process(folder, study, 1)
    easy, wild = folder.records()
    assert easy.status == "reached" and easy.reached is not None and easy.reached.step == 1
    assert wild.status == "diverged" and wild.reason
    said = alray("study", "--resume", "out")
    assert (said.code, said.err) == (0, "")


def test_two_studies_of_one_name_in_one_second_have_two_folders(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As two runs have."""
    monkeypatch.setattr("time.strftime", lambda *form: "now")
    loaded = load_study(study)
    made = [StudyFolder.make(loaded, None).path for _ in range(3)]
    assert [path.relative_to(Path.cwd()) for path in made] == [
        Path("studies/scaling-now"),
        Path("studies/scaling-now_2"),
        Path("studies/scaling-now_3"),
    ]


def test_two_studies_that_begin_at_once_in_one_folder_are_told_apart(study: Path) -> None:
    loaded = load_study(study)

    def lock(folder: Path) -> None:
        """While this study waits for the lock, another one begins."""
        assert not (folder / "trials.json").exists()
        StudyFolder.make(loaded, folder)

    with pytest.raises(RequestError, match="the study folder is not empty"):
        StudyFolder.make(loaded, Path("out"), lock=lock)


def test_one_process_at_a_time_runs_a_study(study: Path, alray) -> None:
    folder = StudyFolder.make(load_study(study), Path("out"))
    with locked(folder.path, print, "study"):
        said = alray("study", "--resume", "out")
    assert (said.code, said.out) == (2, "")
    assert "out: another process works on this study: process " in said.err
