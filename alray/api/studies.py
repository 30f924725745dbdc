"""`alray.study` and `alray.load_study`: a study, and what it came to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from alray.api.arguments import checked
from alray.api.calls import Overrides, override_texts, teller
from alray.api.frames import frame_of_rows
from alray.api.notebook import framed
from alray.api.runs import Run
from alray.config.loading.load import SpecSource
from alray.config.user_code import require_not_imported
from alray.studies.folder import REPORT, SUMMARY, StudyFolder
from alray.studies.records import StudySummary, TrialRecord, read_study

if TYPE_CHECKING:
    from pandas import DataFrame

    from alray.studies.report import StudyReport
    from alray.studies.study import StudyOptions, Watcher


@checked
def study(
    spec: SpecSource,
    overrides: Overrides = None,
    *,
    output: str | Path | None = None,
    address: str | None = None,
    allow_code: bool = False,
    progress: bool = True,
) -> Study:
    """Run all trials of a study, as `alray study` does, and return it when it has ended.

    Raises an `alray.AlrayError` if the study cannot run; a trial that fails is a result. One that was lost with its
    process or node has no record: `summary.lost` counts them, and `resume` runs them again. Ctrl-C ends the trials that
    are running and raises KeyboardInterrupt; `alray.load_study(folder).resume()` begins them anew.

    Args:
        spec: a file or a dict, whose `base` is a file.
        overrides: keys of the study.
        output: the study folder, new or empty; None: studies/<name>-<time>.
        address, allow_code, progress: as for `alray.run`.
    """
    given = override_texts(overrides)
    options = _options(address, output, allow_code)
    from alray.studies.study import run_study

    return _ended(lambda watcher: run_study(spec, given, options, watcher), progress)


@checked
def load_study(folder: str | Path) -> Study:
    """The study in a study folder, which may still be going on. Raises `alray.core.errors.CheckpointError` if it is
    none."""
    return Study(StudyFolder.open(Path(folder)))


class Study:
    """A study: its folder, its trials and the table of its points. In a notebook it shows its page."""

    def __init__(self, of: StudyFolder) -> None:
        self._of = of

    @property
    def folder(self) -> Path:
        return self._of.path

    @property
    def summary(self) -> StudySummary:
        """How the study stood when its report was last written; the report is written if there is none."""
        file = self.folder / SUMMARY
        if file.is_file():
            return read_study(file)
        return self.report()

    @property
    def trials(self) -> list[TrialRecord]:
        """The records of the trials that have ended, in order."""
        return self._of.records()

    @property
    def runs(self) -> list[Run]:
        """The runs of these trials, without those that failed before they could run."""
        return [Run(self._of.trial_dir(each.number)) for each in self.trials if each.summary is not None]

    def table(self) -> DataFrame:
        """A row for each point, with its figures over seeds and settings."""
        return frame_of_rows(self.summary.rows)

    @checked
    def resume(
        self,
        overrides: Overrides = None,
        *,
        address: str | None = None,
        allow_code: bool = False,
        progress: bool = True,
    ) -> Study:
        """Run the trials that have not ended, as `alray study --resume` does.

        Args:
            overrides: what makes the study grow, such as `{"search.trials": 40}`.
        """
        given = override_texts(overrides)
        options = _options(address, None, allow_code)
        from alray.studies.study import resume_study

        return _ended(lambda watcher: resume_study(self.folder, given, options, watcher), progress)

    def report(self) -> StudySummary:
        """Write the report again, of the trials that have ended, and return how the study stands."""
        from alray.studies.report import write_report

        return write_report(self._of).summary

    def __repr__(self) -> str:
        return f"<alray study {self.folder}: {len(self.trials)} trials have ended>"

    def _repr_html_(self) -> str | None:
        page = self.folder / REPORT
        return framed(page.read_text(encoding="utf-8")) if page.is_file() else None


def _options(address: str | None, study_dir: str | Path | None, allow_code: bool) -> StudyOptions:
    from alray.studies.study import StudyOptions

    return StudyOptions(address, None if study_dir is None else Path(study_dir), allow_code)


def _ended(go: Callable[[Watcher], StudyReport], progress: bool) -> Study:
    """Run `go`, show its progress, and return the study.

    Raises KeyboardInterrupt if it was interrupted, and RequestError as `watched`.
    """
    require_not_imported()
    from alray.studies.study import Watcher, progress_line

    tell = teller(progress)
    report = go(Watcher(tell, lambda ended: tell(progress_line(ended))))
    folder = report.summary.study_dir
    if report.summary.status == "interrupted":
        raise KeyboardInterrupt(f'the study was stopped; alray.load_study("{folder}").resume() continues')
    return load_study(folder)
