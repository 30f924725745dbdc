"""The folder of a study: the study, the trials it consists of, and a run folder for each of them."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path

from alray.errors import CheckpointError, RequestError
from alray.records import replace_file, write_json
from alray.spec.loading import dump_spec
from alray.spec.study.loading import LoadedStudy, dump_study, read_study_file
from alray.spec.study.section import Study
from alray.storage import disk
from alray.storage.json_file import read_json
from alray.storage.location import names_a_scheme
from alray.storage.lock import LOCK
from alray.study.records import Begun, TrialRecord, read_trial

STUDY, TRIALS, SUMMARY = "study.yaml", "trials.json", "study.json"
REPORT, MARKDOWN = "report.html", "report.md"
_ENDED = "trial.json"


@dataclass(frozen=True)
class StudyFolder:
    """Where a study keeps what a resume and a report need. A trial has ended once its `trial.json` is there."""

    path: Path

    @classmethod
    def make(cls, loaded: LoadedStudy, study_dir: Path | None) -> StudyFolder:
        """Make the folder `study_dir`, or `studies/<name>-<time>` for None. Raises RequestError if it is not empty."""
        if study_dir is None:
            study_dir = Path("studies") / f"{loaded.study.study}-{time.strftime('%Y%m%d-%H%M%S')}"
        if study_dir.exists() and not _is_free(study_dir):
            raise RequestError(
                "the study folder is not empty",
                file=str(study_dir),
                mend="choose another folder, by --output, or go on with `alray study --resume`",
            )
        try:
            disk.make_folders(study_dir / "trials")
        except OSError as error:
            raise RequestError(
                f"the study folder cannot be made: {error.strerror}",
                file=str(study_dir),
                mend="choose another folder, by --output",
            ) from error
        folder = cls(study_dir.resolve())
        write_json(folder.path / TRIALS, _begun(loaded).model_dump(mode="json"))
        replace_file(folder.path / STUDY, dump_study(loaded.study))  # with it the study has begun
        return folder

    @classmethod
    def open(cls, study_dir: Path) -> StudyFolder:
        """The folder of a study that was begun. Raises CheckpointError if it is none, RequestError for a URL."""
        require_on_disk(study_dir)
        if not (study_dir / STUDY).is_file() or not (study_dir / TRIALS).is_file():
            raise CheckpointError(
                f"this is not a study folder: it has no {STUDY} and {TRIALS}",
                file=str(study_dir),
                mend="name a folder that `alray study` made, such as studies/<name>-<time>",
            )
        return cls(study_dir.resolve())

    def require_same(self, loaded: LoadedStudy) -> None:
        """Raise RequestError unless the study still has the trials that it began with: its base may have changed."""
        begun, now = self.begun, _begun(loaded)
        if begun != now:
            changed = [point for point in begun.points if point not in now.points]
            where = f", at {len(changed)} of {len(begun.points)} points" if changed else ""
            raise RequestError(
                f"the specs of the trials are no longer those that the study began with{where}",
                file=str(loaded.study.base),
                mend="restore this file, or begin a new study",
            )

    def trial_dir(self, number: int) -> Path:
        """The run folder of a trial."""
        return self.path / "trials" / f"{number:04d}"

    def clear(self, number: int) -> Path:
        """The run folder of a trial, without what an earlier attempt left."""
        folder = self.trial_dir(number)
        if folder.exists():
            disk.remove_file(folder / _ENDED)  # before what it tells of, also where the power is cut
            disk.sync_folder(folder)
            disk.remove_folder(folder)
        return folder

    def write(self, record: TrialRecord) -> None:
        """Keep the record of a trial, which has thereby ended."""
        folder = self.trial_dir(record.number)
        disk.make_folders(folder)
        disk.sync_folder(folder.parent)
        replace_file(folder / _ENDED, record.model_dump_json(indent=2) + "\n")

    def record(self, number: int) -> TrialRecord | None:
        """The record of a trial; None if it has not ended."""
        path = self.trial_dir(number) / _ENDED
        return read_trial(path) if path.is_file() else None

    def has_ended(self, number: int) -> bool:
        return (self.trial_dir(number) / _ENDED).is_file()

    def records(self) -> list[TrialRecord]:
        """The records of all trials that have ended, in order. The folder is not listed: a list may be old on NFS."""
        found = (self.record(trial.number) for trial in self.begun.trials)
        return [record for record in found if record is not None]

    @property
    def study(self) -> Study:
        """The study, as its folder keeps it."""
        return read_study_file(self.path / STUDY)

    @property
    def begun(self) -> Begun:
        """What the study consists of, as `trials.json` holds it. Raises CheckpointError if that is damaged."""
        return read_json(self.path / TRIALS, Begun)


def _is_free(study_dir: Path) -> bool:
    """Whether a study can begin in this folder: it is empty, or has what a study leaves that was killed before it had
    written its `study.yaml`."""
    if not study_dir.is_dir():
        return False
    names = {path.name for path in study_dir.iterdir() if path.suffix != disk.PARTIAL}
    trials = study_dir / "trials"
    return names <= {LOCK, "trials", TRIALS} and not (trials.is_dir() and any(trials.iterdir()))


def require_on_disk(study_dir: Path) -> None:
    """Raise RequestError for a URL."""
    if names_a_scheme(str(study_dir)):
        raise RequestError("a study needs a folder on a disk", file=str(study_dir), mend="give a path instead of a URL")


def _begun(loaded: LoadedStudy) -> Begun:
    """What a study consists of, in the types that JSON has."""
    points = [
        {"values": dict(point.values), "spec_sha256": hashlib.sha256(dump_spec(spec).encode()).hexdigest()}
        for point, spec in zip(loaded.points, loaded.specs, strict=True)
    ]
    trials = [
        {"number": trial.number, "point": trial.point.number, "overrides": trial.overrides} for trial in loaded.trials
    ]
    of = {"study": loaded.study.study, "base": str(loaded.study.base), "points": points, "trials": trials}
    return Begun.model_validate_json(json.dumps(of))
