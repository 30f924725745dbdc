"""The folder of a study: the study, the trials it consists of, and a run folder for each of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from alray.config.known_code import CODE, CodeRecord, changed_files, hashes_of, named, sha256
from alray.config.loading.load import dump_spec
from alray.config.loading.own_files import own_files
from alray.config.objects import NO_OBJECTS, Objects, how_to_give
from alray.config.sections.grammar import marked
from alray.config.sections.own_code import OwnClass
from alray.config.sections.section import listed
from alray.config.sections.spec import Spec
from alray.config.study.load import LoadedStudy, read_study_file
from alray.config.study.section import Study
from alray.config.study.trials import Trial
from alray.core.errors import CheckpointError, RequestError
from alray.core.run_folder.records import replace_file, write_json
from alray.core.run_folder.store import new_folder
from alray.core.storage import disk
from alray.core.storage.json_file import read_json
from alray.core.storage.location import names_a_scheme
from alray.core.storage.lock import LOCK
from alray.studies.records import Begun, TrialRecord, read_trial

_GROW = ("repeats", "sessions")
"""Keys of a study that a resume may raise, beside `search.trials`."""
_ABOUT = ("max_concurrent", "verdicts", "doubts")
"""Keys that no trial depends on."""
_QUESTION = ("figure", "of", "over", "minus", "than", "above", "below", "samples")
"""Keys of a verdict that decide what is asked. The claim and its source are words."""
STUDY = "study.yaml"
TRIALS = "trials.json"
SUMMARY = "study.json"
REPORT, MARKDOWN = "report.html", "report.md"
_ENDED = "trial.json"


@dataclass(frozen=True)
class StudyFolder:
    """Where a study keeps what a resume and a report need. A trial has ended once its `trial.json` is there, unless
    this says that the trial was lost."""

    path: Path

    @classmethod
    def make(
        cls,
        loaded: LoadedStudy,
        study_dir: Path | None,
        objects: Objects = NO_OBJECTS,
        lock: Callable[[Path], None] = lambda folder: None,
    ) -> StudyFolder:
        """Make the folder `study_dir`, or `studies/<name>-<time>` for None. Raises RequestError if it is not empty.

        Args:
            objects: that a Python program gave; the folder has their hashes alone.
            lock: keeps others out of the folder, before anything is written to it.
        """
        if study_dir is not None:
            _require_free(study_dir)
        path = Path("studies") / loaded.study.study if study_dir is None else study_dir
        try:
            if study_dir is None:
                path = new_folder(path)
            disk.make_folders(path / "trials")
        except OSError as error:
            raise RequestError(
                f"the study folder cannot be made: {error.strerror}",
                file=str(path),
                hint="choose another folder, by --output",
            ) from error
        folder = cls(path.resolve())
        lock(folder.path)
        _require_free(folder.path)  # another study may have begun here meanwhile
        write_json(folder.path / TRIALS, _begun(loaded, _identities(objects)).model_dump(mode="json"))
        replace_file(folder.path / STUDY, dump_spec(loaded.study))  # with it the study has started
        return folder

    def keep(self, grown: LoadedStudy) -> None:
        """Keep what `grown` returned, and the claims that the study had when its first trial ended. The text of the
        study comes first: a study whose text alone has grown is one that grows at its next resume."""
        begun = self.begun
        now = _begun(grown, begun.objects)
        if any(self.has_ended(trial.number) for trial in begun.trials):
            now = now.model_copy(update={"spec": {**now.spec, "verdicts": begun.spec["verdicts"]}})
        now = now.model_copy(update={"code": {**now.code, **begun.code}})
        if now != begun or grown.study != self.study:
            replace_file(self.path / STUDY, dump_spec(grown.study))
            write_json(self.path / TRIALS, now.model_dump(mode="json"))

    def changed_claims(self) -> tuple[list[str], list[str]]:
        """The claims of the study that ask another question, or have another bound, than all that it had before its
        first trial ended; and those of that time whose question it no longer asks."""
        first = self.begun.spec["verdicts"]
        now = self.study.model_dump(mode="json")["verdicts"]
        return _asked_anew(now, first), _asked_anew(first, now)

    def require_same_code(self, loaded: LoadedStudy) -> None:
        """Raise RequestError, which names the files, if code of the user that the study began with has changed: its
        trials would not have one network."""
        root = code_root(loaded)
        if changed := changed_files(CodeRecord(root=str(root), files=self.begun.code)):
            copies = (self.trial_dir(each.number) / CODE for each in self.begun.trials)
            copy = next((f" ({folder} has them)" for folder in copies if folder.is_dir()), "")
            raise RequestError(
                f"the code is no longer that which the study began with: {named(changed)}",
                file=str(root),
                hint=f"restore these files{copy}, or begin a new study",
            )

    def require_same_objects(self, given: Objects, note: Callable[[str], None]) -> None:
        """Raise RequestError unless these are the objects with which the study began.

        Of a model its layers and first weights are compared, of data what `GivenData.contents` says, of others nothing.

        Args:
            note: gets a sentence where two models cannot be compared.
        """
        from alray.models.imported.identity import is_same_module  # with it comes torch

        began = self.begun.objects
        if missing := [f"`{name}`" for name in began if name not in given.values]:
            raise RequestError(
                f"this study was given objects by a Python program, and no file has them: {', '.join(missing)}",
                file=str(self.path),
                hint=f'give them in Python: alray.load_study("{self.path}").resume({how_to_give(began)})',
            )
        identities = _identities(given)
        for name, before in began.items():
            now = identities[name]
            # The hash of data has no version of what made it, so data are never told to be unknown.
            same = before == now if before is None or now is None else is_same_module(before, now)
            if same is None:
                note(
                    f"whether this is the `{name}` of this study is not known: that was hashed by another version of "
                    "alray, Python or torch"
                )
            elif not same:
                raise RequestError(
                    f"this is not the `{name}` of this study: it has other contents",
                    key=name,
                    hint="give the object that the study began with; a module that has trained since is another one",
                )

    @classmethod
    def open(cls, study_dir: Path) -> StudyFolder:
        """The folder of a study that was started. Raises CheckpointError if it is none, RequestError for a URL."""
        require_on_disk(study_dir)
        if not (study_dir / STUDY).is_file() or not (study_dir / TRIALS).is_file():
            raise CheckpointError(
                f"this is not a study folder: it has no {STUDY} and {TRIALS}",
                file=str(study_dir),
                hint="name a folder that `alray study` made, such as studies/<name>-<time>",
            )
        return cls(study_dir.resolve())

    def grown(self, loaded: LoadedStudy) -> LoadedStudy:
        """The study as it is asked for now, in which every trial that it began with has its number. The trials of
        further seeds, sessions and settings of the search come after them.

        Raises RequestError if anything else has changed, for then it is another study: `study.yaml` or the base may
        have been edited.
        """
        begun = self.begun
        now = _begun(loaded, begun.objects)
        before, after = _fixed(begun.spec), _fixed(now.spec)
        if changed := [key for key in {**before, **after} if before.get(key) != after.get(key)]:
            raise self._refused(f"this is no longer the study that began here: {listed(changed, 'and')} changed")
        if now.points != begun.points:
            raise RequestError(
                "the specs of the trials are no longer those that the study began with",
                file=str(loaded.study.base),
                hint="restore this file, or begin a new study",
            )
        return self._continued(begun, loaded)

    def left_of(self, loaded: LoadedStudy) -> LoadedStudy:
        """A study that `grown` returned, with those of its trials alone that have not ended."""
        return replace(loaded, trials=tuple(each for each in loaded.trials if not self.has_ended(each.number)))

    def _continued(self, begun: Begun, loaded: LoadedStudy) -> LoadedStudy:
        """The study whose old trials have their old numbers.

        Trials of a point with the same overrides are told apart by their order: those of several sessions, and those
        whose settings Optuna will propose.

        Raises RequestError if an old trial is no longer in it.
        """
        alike: dict[tuple[int | str, ...], list[Trial]] = {}
        for trial in loaded.trials:
            alike.setdefault((trial.point.number, *trial.overrides), []).append(trial)
        matched: list[Trial] = []
        for old in begun.trials:
            if not (same := alike.get((old.point, *old.overrides))):
                raise self._refused("trials that the study began with are no longer in it")
            matched.append(replace(same.pop(0), number=old.number))
        left = sorted((trial for trials in alike.values() for trial in trials), key=lambda trial: trial.number)
        new = [replace(trial, number=len(matched) + index) for index, trial in enumerate(left)]
        return replace(loaded, trials=(*matched, *new))

    def _refused(self, message: str) -> RequestError:
        return RequestError(
            message,
            file=str(self.path / STUDY),
            hint="restore it, or begin a new study; `search.trials`, `repeats` and `sessions` can grow",
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
        """Keep the record of a trial, which has thereby ended unless it was lost."""
        folder = self.trial_dir(record.number)
        disk.make_folders(folder)
        disk.sync_folder(folder.parent)
        replace_file(folder / _ENDED, record.model_dump_json(indent=2) + "\n")

    def record(self, number: int) -> TrialRecord | None:
        """The record of a trial; None if it has not ended."""
        found = self._saved(number)
        return None if found is None or found.status == "lost" else found

    def has_ended(self, number: int) -> bool:
        return self.record(number) is not None

    def records(self) -> list[TrialRecord]:
        """The records of all trials that have ended, in order. The folder is not listed: a list may be old on NFS."""
        found = (self.record(trial.number) for trial in self.begun.trials)
        return [record for record in found if record is not None]

    def lost(self) -> list[TrialRecord]:
        """The records of the trials that were lost, in order."""
        found = (self._saved(trial.number) for trial in self.begun.trials)
        return [record for record in found if record is not None and record.status == "lost"]

    def _saved(self, number: int) -> TrialRecord | None:
        path = self.trial_dir(number) / _ENDED
        return read_trial(path) if path.is_file() else None

    @property
    def study(self) -> Study:
        """The study, as its folder keeps it."""
        return read_study_file(self.path / STUDY)

    @property
    def begun(self) -> Begun:
        """The points and trials of the study, from `trials.json`. Raises CheckpointError if that is damaged."""
        return read_json(self.path / TRIALS, Begun)


def _require_free(study_dir: Path) -> None:
    if study_dir.exists() and not _is_free(study_dir):
        raise RequestError(
            "the study folder is not empty",
            file=str(study_dir),
            hint="choose another folder, by --output, or continue with `alray study --resume`",
        )


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
        raise RequestError("a study needs a folder on a disk", file=str(study_dir), hint="give a path instead of a URL")


def _identities(objects: Objects) -> dict[str, str | None]:
    """The hash of each object; None for a class."""
    if not objects.values:
        return {}
    from torch import nn

    from alray.data.given import GivenData
    from alray.models.imported.identity import module_sha256

    found = dict[str, str | None]()
    for name in objects.values:
        value = objects[name]
        contents = value.contents if isinstance(value, GivenData) else None
        found[name] = module_sha256(value) if isinstance(value, nn.Module) else contents
    return found


def code_root(loaded: LoadedStudy) -> Path:
    """The folder that the modules of the user's classes lie in."""
    return loaded.study.base.parent.resolve()


def code_of(loaded: LoadedStudy) -> set[Path]:
    """The files of the user's code that trials may load."""
    specs = (*loaded.specs, *loaded.ends.values())
    references = {reference for spec in specs for _, reference, _ in marked(spec, OwnClass)}
    return own_files(references, code_root(loaded))


def _begun(loaded: LoadedStudy, objects: Mapping[str, str | None]) -> Begun:
    """The points and trials of a study, in the types that JSON has.

    Args:
        objects: their hashes.
    """
    points = [
        {"values": dict(point.values), "spec_sha256": _hash_of(spec)}
        for point, spec in zip(loaded.points, loaded.specs, strict=True)
    ]
    trials = [
        {"number": trial.number, "point": trial.point.number, "overrides": trial.overrides} for trial in loaded.trials
    ]
    spec = loaded.study.model_dump(mode="json")
    of = {
        "study": loaded.study.study,
        "base": str(loaded.study.base),
        "spec": spec,
        "points": points,
        "skipped": [{"point": dict(each.point.values), "reason": each.reason} for each in loaded.skipped],
        "trials": trials,
        "code": hashes_of(code_root(loaded), code_of(loaded)),
        "objects": objects,
    }
    return Begun.model_validate_json(json.dumps(of))


def _hash_of(spec: Spec) -> str:
    return sha256(spec.model_dump_json().encode())


def _asked_anew(verdicts: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> list[str]:
    """The claims of these verdicts whose question none of the others asks."""
    known = [question(each) for each in others]
    return [each["claim"] for each in verdicts if question(each) not in known]


def question(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """What a claim asks, without its words."""
    return {key: verdict[key] for key in _QUESTION if verdict.get(key) not in (None, [], {})}


def _fixed(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a study that a resume may not change, with their values."""
    kept = {key: value for key, value in spec.items() if key not in (*_GROW, *_ABOUT)}
    return {**kept, "search": {**(kept["search"] or {}), "trials": None}}
