"""Loads a study spec: every point of its axes is loaded as the spec of a run before anything runs."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from alray.config.loading.composition import Composed
from alray.config.loading.load import (
    SpecSource,
    directory_of,
    file_of,
    load_composed,
    read_document,
    read_spec,
)
from alray.config.loading.messages import in_order, problem
from alray.config.loading.overrides import apply_overrides
from alray.config.loading.source_locations import COMMAND_LINE, SourceLocations
from alray.config.loading.values import read_values
from alray.config.sections.checks import Check
from alray.config.sections.grammar import spelled_out
from alray.config.sections.paths import Path, key_text
from alray.config.sections.spec import Spec
from alray.config.study.checks import (
    CHECKS,
    StudyCheck,
    base_is_a_file,
    claims_of_shares,
    trial_faults,
)
from alray.config.study.points import Point, Setting, merged, parts_of, points_of
from alray.config.study.section import FLAT, Study
from alray.config.study.trials import Trial, settings_at_the_ends, trials_of
from alray.core.counting import counted
from alray.core.errors import Problem, SpecError

AlsoCheck = Callable[[pathlib.Path], Sequence[Check]]
"""Gives further checks of a spec in this folder."""


@dataclass(frozen=True)
class Skipped:
    """A point that is no possible run.

    Attributes:
        reason: what the messages about its spec say, in one line.
    """

    point: Point
    reason: str


@dataclass(frozen=True)
class LoadedStudy:
    """A study, its points with the spec of each, its trials in order, notes for the user, and the points that it
    skips.

    Attributes:
        ends: specs that together have every value of every choice of the search, and both ends of every range, by
            their overrides. A trial may come to any of them, also one whose settings are drawn later.
    """

    study: Study
    points: tuple[Point, ...]
    specs: tuple[Spec, ...]
    trials: tuple[Trial, ...]
    notes: tuple[str, ...]
    skipped: tuple[Skipped, ...] = ()
    ends: Mapping[tuple[str, ...], Spec] = field(default_factory=dict)

    def spec_of(self, trial: Trial) -> Spec:
        """The spec of a trial, with the values that were drawn for it."""
        if not trial.values:  # only the seed differs
            return self.specs[trial.point.number].model_copy(update={"seed": trial.seed})
        return load_composed(self._base.copy(), self.study.base, trial.overrides).spec

    @cached_property
    def _base(self) -> Composed:
        return read_spec(self.study.base)


def is_study(path: str | pathlib.Path) -> bool:
    """Whether a file holds a study. False also where it cannot be read: `load_spec` tells why."""
    try:
        return "study" in read_document(path).value
    except SpecError:
        return False


def study_of(source: SpecSource, overrides: Sequence[str]) -> Study:
    """A study with overrides of its keys, without its points. Raises SpecError with all problems."""
    return _read(source, overrides, CHECKS)[0]


def read_study_file(file: pathlib.Path) -> Study:
    """The study in a file, without its points. Raises SpecError with all problems, but for that of the
    base, which matters to the points alone: it may be gone since."""
    return _read(file, (), [check for check in CHECKS if check is not base_is_a_file])[0]


def load_study(
    source: SpecSource,
    overrides: Sequence[str] = (),
    *,
    also: AlsoCheck = lambda base: (),
) -> LoadedStudy:
    """Read a study, apply `key=value` overrides of its keys, and check every point as a spec.

    Args:
        also: gives further checks of a spec in this folder.

    Raises:
        SpecError: with all problems of the study itself, or else with all of its points, each with file, line, key and
            hint.
    """
    study, locations = _read(source, overrides, CHECKS)
    loader = _PointLoader(study, locations, also)
    loader.load()
    problems = loader.problems or [problem(locations, *found) for found in claims_of_shares(study, loader.specs[0])]
    if problems:
        raise SpecError.of(
            tuple(sorted(dict.fromkeys(problems), key=lambda one: (one.file != locations.file, one.line or 0)))
        )
    trials = tuple(trials_of(study, loader.points, [spec.seed for spec in loader.specs]))
    notes, skipped = tuple(loader.notes), tuple(loader.skipped)
    return LoadedStudy(study, tuple(loader.points), tuple(loader.specs), trials, notes, skipped, loader.ends)


def _read(source: SpecSource, overrides: Sequence[str], checks: Iterable[StudyCheck]) -> tuple[Study, SourceLocations]:
    """The study itself, with overrides, and where its values are. Raises SpecError with all problems."""
    parsed = read_document(source)
    locations = parsed.locations
    if "study" not in parsed.value:
        raise SpecError("this is the spec of one run, not a study", hint="run it with `alray run`", file=locations.file)
    spelled_out(parsed.value, Study)
    applied = apply_overrides(parsed.value, overrides, locations, root=Study, flat=FLAT)
    study, problems = read_values(Study, parsed, directory_of(file_of(source)))
    problems += applied.problems
    if study is not None:
        problems += [problem(locations, *finding) for check in checks for finding in check(study)]
    if study is None or problems:
        raise SpecError.of(tuple(in_order(problems)))
    return study, locations


@dataclass
class _Found:
    """A problem of a spec, the setting that it is about, whether its key is wrong, and the points that have it."""

    problem: Problem
    setting: Setting | None
    at_key: bool
    points: list[Point] = field(default_factory=list)


class _PointLoader:
    """Loads the spec of every point, and of every end of the search there."""

    def __init__(self, study: Study, locations: SourceLocations, also: AlsoCheck) -> None:
        self._study = study
        self._locations = locations
        self._also = also
        self._read: Composed | SpecError | None = None
        self._found: dict[tuple[object, ...], _Found] = {}
        self.points: list[Point] = []
        self.specs: list[Spec] = []
        self.ends: dict[tuple[str, ...], Spec] = {}
        self.skipped: list[Skipped] = []
        self.notes: dict[str, None] = {}
        self.problems: list[Problem] = []

    def load(self) -> None:
        """Load them."""
        refused: set[int] = set()
        for point in points_of(self._study):
            self.points.append(point)
            spec = self._spec(point, point.settings)
            if spec is None:
                refused.add(point.number)
                continue
            self.specs.append(spec)
            for drawn in settings_at_the_ends(self._study.search, point) if self._study.search is not None else ():
                settings = merged(point.settings, drawn)
                if (end := self._spec(point, settings)) is not None:
                    self.ends[tuple(setting.override for setting in settings)] = end
        self._tell_of_patience()
        if self._study.impossible == "skip":
            self._skip(refused)
        self.problems = [self._located(found) for found in self._found.values()]
        if not self.problems:
            self.points = [replace(point, number=number) for number, point in enumerate(self.points)]
            self.problems = list(self._equal_points())

    def _tell_of_patience(self) -> None:
        """Tell that the target sets the whole of `run.stop_at`, where the patience of the base would be missed."""
        if self._study.target is None or "run" in self._study.set:
            return
        with suppress(SpecError):  # what is wrong with the base is told at each point
            run = self._base().value.get("run")
            stop_at = run.get("stop_at") if isinstance(run, dict) else None
            if isinstance(stop_at, dict) and (patience := stop_at.get("patience")) is not None:
                note = f"the target replaces run.stop_at of the base: no trial ends by its patience of {patience}"
                self.notes[note] = None

    def _skip(self, refused: set[int]) -> None:
        """Leave out those of the refused points with a problem that not all points have, and these problems. Points
        with a value that fits at no point stay, and so do their problems: such a value is a mistake."""
        of_some = [found for found in self._found.values() if len(found.points) < len(self.points)]
        impossible = refused & {point.number for found in of_some for point in found.points}
        fitting = {value for point in self.points if point.number not in impossible for value in _values_of(point)}
        reasons: dict[int, list[str]] = {
            point.number: []
            for point in self.points
            if point.number in impossible and fitting and fitting.issuperset(_values_of(point))
        }
        for found in self._found.values():
            fault = found.problem
            for point in found.points:
                if point.number in reasons:
                    reasons[point.number].append(f"{fault.key}: {fault.message}" if fault.key else fault.message)
            found.points = [point for point in found.points if point.number not in reasons]
        self._found = {key: found for key, found in self._found.items() if found.points}
        self.skipped = [
            Skipped(point, "; ".join(dict.fromkeys(reasons[point.number])))
            for point in self.points
            if point.number in reasons
        ]
        self.points = [point for point in self.points if point.number not in reasons]

    def _base(self) -> Composed:
        """The base, which is read once. Raises SpecError if it cannot be read."""
        if self._read is None:
            try:
                self._read = read_spec(self._study.base)
            except SpecError as error:
                self._read = error
        if isinstance(self._read, SpecError):
            raise self._read
        return self._read

    def _spec(self, point: Point, settings: Iterable[Setting]) -> Spec | None:
        settings = tuple(settings)
        try:
            overrides = [setting.override for setting in settings]
            base = self._study.base
            loaded = load_composed(self._base().copy(), base, overrides, also=self._also(base.parent))
        except SpecError as error:
            for fault in error.problems:
                self._find(fault, point, settings)
            return None
        for key, message, hint in trial_faults(self._study, loaded.spec):
            self._find(Problem(message, hint, COMMAND_LINE, key=key), point, settings)
        self.notes |= dict.fromkeys(loaded.notes)
        return loaded.spec

    def _find(self, fault: Problem, point: Point, settings: Sequence[Setting]) -> None:
        setting, at_key = None, fault.column == 1
        if fault.file == COMMAND_LINE:  # the same may be wrong with the values of several points
            setting = _nearest(fault, settings)
            hint = fault.hint and re.sub("(?<=^did you mean `)([^=`]*)=.*`", r"\1`", fault.hint)  # its key alone
            fault = replace(fault, hint=hint, text=None, column=None, end_column=None)
        found = self._found.setdefault((fault, setting and _group(setting)), _Found(fault, setting, at_key))
        if point not in found.points:
            found.points.append(point)

    def _located(self, found: _Found) -> Problem:
        """The problem with its location in the study, and with a point unless the location says which have it."""
        fault, setting = found.problem, found.setting
        source: Path | None = ("base",) if fault.file == COMMAND_LINE and setting is None else None
        everywhere = len(found.points) == len(self.points)
        if setting is not None:
            alike = [point for point in self.points if _group(setting) in map(_group, point.settings)]
            same = [point for point in self.points if setting.source in [one.source for one in point.settings]]
            everywhere = everywhere or found.points in (alike, same)
            source = _group(setting) if found.points == alike else setting.source
        if source is not None:
            message = fault.message
            if fault.key is not None and (setting is None or parts_of(fault.key) != setting.path):
                message = f"{fault.key}: {message}"
            fault = self._locations.of(source).problem(message, fault.hint, key_text(source), at_key=found.at_key)
        if not everywhere:
            others = f", the first of {counted(len(found.points), 'point')}" if len(found.points) > 1 else ""
            fault = replace(fault, message=f"{fault.message} (at {found.points[0].label}{others})")
        return fault

    def _equal_points(self) -> Iterable[Problem]:
        seen: dict[tuple[str, str], Point] = {}
        search = self._study.search
        for point, spec in zip(self.points, self.specs, strict=True):
            searched = repr(search.space_at(point.values)) if search is not None else ""
            other = seen.setdefault((spec.model_dump_json(), searched), point)
            if other is not point:
                message = f"the points `{other.label}` and `{point.label}` are the same run"
                yield problem(self._locations, ("axes",), message, "a later axis replaces what an earlier one sets")


def _values_of(point: Point) -> set[tuple[str, str]]:
    """The axes of a point with its values, as texts."""
    return {(axis, json.dumps(value, sort_keys=True)) for axis, value in point.values.items()}


def _group(setting: Setting) -> Path:
    """The path in the study of a setting; of a value in a list, the whole axis."""
    source = setting.source
    return source[:2] if len(source) == 3 and source[0] == "axes" else source


def _nearest(fault: Problem, settings: Sequence[Setting]) -> Setting | None:
    """The setting that a problem of the spec is about: the innermost one around its key, else one below it."""
    path = parts_of(fault.key or "")
    around = [setting for setting in settings if path[: len(setting.path)] == setting.path]
    below = [setting for setting in settings if setting.path[: len(path)] == path and path]
    return max(around, key=lambda setting: len(setting.path), default=below[-1] if below else None)
