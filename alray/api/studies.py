"""`alray.study` and `alray.load_study`: a study, and what it came to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alray.api.callbacks import Called
from alray.api.calls import Overrides, checked, override_texts, teller
from alray.api.frames import frame_of_rows
from alray.api.notebook import framed
from alray.api.objects import given_again, taken_for_study
from alray.api.runs import Run
from alray.config.loading.load import SpecSource
from alray.config.objects import NO_OBJECTS, Objects, how_to_give
from alray.config.user_code import require_not_imported
from alray.core.errors import AlrayError
from alray.studies.folder import REPORT, STUDY, SUMMARY, StudyFolder
from alray.studies.records import StudySummary, TrialRecord, read_study

if TYPE_CHECKING:
    from pandas import DataFrame

    from alray.studies.report import StudyReport
    from alray.studies.study import Watcher


@checked
def study(
    spec: SpecSource,
    overrides: Overrides = None,
    *,
    model: Any = None,
    data: Any = None,
    output: str | Path | None = None,
    address: str | None = None,
    allow_code: bool = False,
    callbacks: Sequence[object] = (),
    progress: bool = True,
) -> Study:
    """Run all trials of a study, as `alray study` does, and return it when it has ended.

    Raises an `alray.AlrayError` if the study cannot run; a trial that fails is a result. One that was lost with its
    process or node has no record: `summary.lost` counts them, and `resume` runs them again. Ctrl-C ends the trials that
    are running and raises KeyboardInterrupt; `alray.load_study(folder).resume()` begins them anew.

    Args:
        spec: a file or a dict, whose `base` is a file.
        overrides: keys of the study.
        model, data: as for `alray.run`, in every trial.
        output: the study folder, new or empty; None: studies/<name>-<time>.
        callbacks: objects with a method `on_trial` (see `alray.Callback`). One that stops the study is no error: trials
            that are running end without a record, and `resume` runs them again. What one of them raises ends the study
            in the same way.
        address, allow_code, progress: as for `alray.run`.
    """
    found = taken_for_study(spec, overrides, model=model, data=data)
    from alray.studies.study import StudyOptions, run_study

    options = StudyOptions(address, None if output is None else Path(output), allow_code, found.objects)
    return _ended(
        lambda watcher: run_study(found.spec, found.overrides, options, watcher), found.objects, callbacks, progress
    )


@checked
def load_study(folder: str | Path, **objects: Any) -> Study:
    """The study in a study folder, which may still be going on.

    Args:
        objects: what a Python program gave to the study and no file has, such as `model` and `data`. To resume it, and
            to evaluate its runs, needs them.

    Raises:
        alray.core.errors.CheckpointError: if it is none.
        alray.core.errors.RequestError: for an object that the study does not have.
    """
    study = Study(StudyFolder.open(Path(folder)))
    return study.with_objects(objects)


class Study:
    """A study: its folder, its trials and the table of its points. In a notebook it shows its page."""

    def __init__(self, of: StudyFolder, objects: Objects = NO_OBJECTS) -> None:
        """
        Args:
            objects: that the program gave to the study.
        """
        self._of = of
        self.objects = objects

    def with_objects(self, objects: Mapping[str, Any]) -> Study:
        """This study, with the objects that its program gives again, by name. Raises RequestError as `load_study`."""
        if not objects:
            return self
        from alray.config.study.load import load_study as load

        spec = load(self.folder / STUDY).specs[0]  # all points have the same objects
        return Study(self._of, self.objects.and_also(given_again(spec, objects)))

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
        return [Run(self._of.trial_dir(each.number), self.objects) for each in self.trials if each.summary is not None]

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
        callbacks: Sequence[object] = (),
        progress: bool = True,
        **objects: Any,
    ) -> Study:
        """Run the trials that have not ended, as `alray study --resume` does.

        Args:
            overrides: what makes the study grow, such as `{"search.trials": 40}`.
            callbacks: as for `alray.study`.
            objects: what a Python program gave to the study and no file has, such as `model` and `data`.
        """
        given = override_texts(overrides)
        again = self.with_objects(objects)
        from alray.studies.study import StudyOptions, resume_study

        options = StudyOptions(address, None, allow_code, again.objects)
        return _ended(
            lambda watcher: resume_study(self.folder, given, options, watcher), options.objects, callbacks, progress
        )

    def report(self) -> StudySummary:
        """Write the report again, of the trials that have ended, and return how the study stands."""
        from alray.studies.report import write_report

        return write_report(self._of).summary

    def __repr__(self) -> str:
        return f"<alray study {self.folder}: {len(self.trials)} trials have ended>"

    def _repr_html_(self) -> str | None:
        page = self.folder / REPORT
        return framed(page.read_text(encoding="utf-8")) if page.is_file() else None


def _ended(
    go: Callable[[Watcher], StudyReport], objects: Objects, callbacks: Sequence[object], progress: bool
) -> Study:
    """Run `go`, show its progress, and return the study.

    Raises KeyboardInterrupt if the user interrupted it, UserCodeError if a callback failed, and RequestError as
    `watched`.
    """
    require_not_imported()
    from alray.studies.study import StudyProgress, Watcher, progress_line

    called, tell = Called(callbacks), teller(progress)
    warn = tell if progress else teller(True)
    called.begin()

    def ended(trial: StudyProgress) -> None:
        tell(progress_line(trial))
        called.call("on_trial", trial.record, tell)

    def lost(error: AlrayError) -> None:
        warn(f"{error}. Ray ends this process within about a minute.")  # no exception would reach its user

    def resume(folder: Path) -> str:
        return f'alray.load_study("{folder}").resume({how_to_give(objects.values)})'

    report = go(Watcher(tell, ended, lost, lambda: bool(called.who_stops), resume))
    study = Study(StudyFolder.open(Path(report.summary.study_dir)), objects)
    again = f"{resume(study.folder)} continues"
    if called.error is not None:
        called.error.add_note(again)
        raise called.error
    if report.summary.status == "interrupted" and not called.who_stops:
        raise KeyboardInterrupt(f"the study was stopped; {again}")
    return study
