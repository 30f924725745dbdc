"""Reports of studies in docs: what is kept of a study folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from alray.core.run_folder.records import read_environment
from alray.studies.folder import StudyFolder
from alray.studies.report import write_report
from benchmarks import studies
from benchmarks.committed import report_of

from ..studies.conftest import results, study_folder, trial


@pytest.mark.parametrize("stopped", [False, True])
def test_a_report_has_the_minutes_of_the_whole_study_or_none(
    stopped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(studies, "FOLDERS", tmp_path / "studies")
    folder = tmp_path / "studies" / "made-up"

    def ended(command: list[str], *, check: bool) -> None:
        """What is left of the study takes no time, and ends in this folder."""
        assert ("--resume" in command) == stopped
        of = results([trial(number, {"pipeline.stages": number + 1}) for number in range(2)])
        made = study_folder(of, folder)
        (made.trial_dir(0) / studies.ENVIRONMENT).write_text(
            '{"alray": "0.4", "host": "here", "given": {}, "spec_sha256": []}', encoding="utf-8"
        )
        write_report(made)

    monkeypatch.setattr("subprocess.run", ended)
    if stopped:
        folder.mkdir(parents=True)
    studies.keep("made-up", studies.run("made-up"), into=tmp_path / "docs")
    text = (tmp_path / "docs" / "made-up" / "README.md").read_text(encoding="utf-8")
    assert "made-up.yaml)" in text and (" minutes." in text) != stopped
    ran = tmp_path / "docs" / "made-up" / studies.SESSIONS / "1" / studies.ENVIRONMENT
    assert "0.4" in ran.read_text(encoding="utf-8") and "here" not in ran.read_text(encoding="utf-8")


def test_a_report_of_a_tree_with_changes_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "FOLDERS", tmp_path)
    folder = write_report(study_folder(results([trial(0, {})]), tmp_path / "made-up"))
    page = tmp_path / "made-up" / "report.md"
    made = "\n## Made with\n\nalray 0.4 at commit 0123456789ab with changes, Python 3.11.7\n"
    page.write_text(page.read_text(encoding="utf-8") + made, encoding="utf-8")
    with pytest.raises(SystemExit, match="had changes"):
        studies.keep("made-up", 1.0, into=tmp_path / "docs")
    assert folder.summary.trials == 1 and not (tmp_path / "docs").exists()


def test_a_study_goes_on_from_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is gone, as on another machine."""
    commands: list[list[str]] = []
    monkeypatch.setattr(studies, "FOLDERS", tmp_path)
    monkeypatch.setattr("subprocess.run", lambda command, *, check: commands.append(command))
    studies.run_session("target")
    report, folder = report_of("target"), StudyFolder.open(tmp_path / "target")
    assert commands[0][-1] == f"sessions={report.loaded.study.sessions + 1}"
    assert folder.records() == report.results.records
    assert all(read_environment(folder.trial_dir(each.number)) for each in folder.records())
