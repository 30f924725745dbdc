"""A study from its spec to its report: load, refuse what cannot run, run the trials, report."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alray.config.known_code import CodeRecord, read_record, refused, sha256, write_record
from alray.config.loading.inputs import names_code
from alray.config.loading.load import SpecSource
from alray.config.objects import NO_OBJECTS, Objects
from alray.config.sections.spec import Spec
from alray.config.study.load import LoadedStudy, load_study
from alray.config.study.section import Asha
from alray.config.study.trials import Trial
from alray.core.counting import counted
from alray.core.environment import environment
from alray.core.errors import AlrayError, PlanError, StageError, SystemFault
from alray.core.run_folder.store import is_marked, mark, new_token
from alray.core.storage.lock import locked
from alray.core.system_errors import system_faults
from alray.report.text import score, seconds
from alray.runtime.cluster.connect import connect
from alray.runtime.cluster.nodes import Bundle
from alray.runtime.cluster.room import has_room, holding_nodes
from alray.runtime.local_ray.head import told_of_loss
from alray.runtime.local_ray.sigterm import sigterm_as_sigint
from alray.runtime.options import require_launched_once
from alray.runtime.probe.other_programs import Machine
from alray.runtime.runner.engines import stage_bundles
from alray.studies.busy import is_disturbed, taken_from
from alray.studies.folder import STUDY, StudyFolder, code_of, code_root, require_on_disk
from alray.studies.records import TrialRecord
from alray.studies.report import StudyReport, write_report
from alray.studies.trial import TrialOrder, record_of

if TYPE_CHECKING:
    from alray.studies.tuning import End

_TUNES = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of trials that fail while the study stops: nobody asks for them
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",  # nothing that Tune could save is ever read
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
}
"""What Ray Tune reads from the environment of a process that runs a study. It is set around the connection to Ray: what
a study leaves there comes to an end later than it does. Outside of it, a Ray Tune of the user's own is as before."""


@dataclass(frozen=True)
class StudyOptions:
    """How to run a study; nothing here changes what is computed."""

    address: str | None = None  # the Ray cluster to attach to; None: start one for this study
    study_dir: Path | None = None  # None: studies/<name>-<time>
    allow_code: bool = False  # load the user's classes from outside the spec's folder, and of a stranger's study, too
    objects: Objects = NO_OBJECTS  # that a Python program gave to every trial

    def __post_init__(self) -> None:
        if self.study_dir is not None:
            require_on_disk(self.study_dir)


@dataclass(frozen=True)
class StudyProgress:
    """A trial has ended.

    Attributes:
        ended: the number of trials that have.
        left_s: as `seconds_left` gives it.
    """

    record: TrialRecord
    label: str
    ended: int
    trials: int
    left_s: float | None


def progress_line(progress: StudyProgress) -> str:
    """A trial that has ended, in one line."""
    record = progress.record
    parts: list[str] = [record.status]
    if record.reached is not None:
        parts.append(f"target after {counted(record.reached.step, 'mini-batch')}")
    if record.summary is not None and record.summary.best is not None:
        parts.append(f"validation {score(record.summary.best.validation)}")
    if record.summary is not None and record.summary.step_time_s is not None:
        parts.append(f"{seconds(record.summary.step_time_s)} a mini-batch")
    if is_disturbed(record):
        parts.append("beside other programs")
    if record.reason is not None:
        parts.append(record.reason.splitlines()[0])
    left = f"; about {seconds(progress.left_s)} left" if progress.left_s is not None else ""
    return f"[{progress.ended}/{progress.trials}] {progress.label}: {', '.join(parts)}{left}"


def seconds_left(ended_s: Sequence[float], at_once: int, left: int) -> float | None:
    """Seconds to the end of a study, at its pace; None if none is left, or as long as the pace is not known.

    The pace is taken over whole rounds of trials, after the first round: this one also waits until processes have
    started.

    Args:
        ended_s: when each trial has ended, in order.
        at_once: the number of trials that run at once.
        left: the number of trials that have not ended.
    """
    timed = (len(ended_s) - 1) // at_once * at_once
    if left == 0 or timed == 0:
        return None
    return (ended_s[-1] - ended_s[-1 - timed]) / timed * left


@dataclass(frozen=True)
class Watcher:
    """Shows a study to the user.

    Attributes:
        note: takes a line.
        progress: is called when a trial has ended.
        lost: is called in a separate thread with an error when the Ray that was started for the study has died. Tune
            then waits for it in a call that no exception ends, and Ray ends this process after a minute with a message
            of Ray.
        stop_requested: whether the study is to stop. The trials that are running then end without a record.
        resume: what the user calls to continue the study in a folder.
    """

    note: Callable[[str], None]
    progress: Callable[[StudyProgress], None]
    lost: Callable[[AlrayError], None] = lambda error: None
    stop_requested: Callable[[], bool] = lambda: False
    resume: Callable[[Path], str] = lambda folder: f"alray study --resume {folder}"


def run_study(source: SpecSource, overrides: list[str], options: StudyOptions, watcher: Watcher) -> StudyReport:
    """Run a study from its beginning, in a new study folder."""
    loaded = load_study(source, overrides)
    for line in loaded.notes:
        watcher.note(line)
    return _run(loaded, None, options, watcher)


def resume_study(study_dir: Path, overrides: list[str], options: StudyOptions, watcher: Watcher) -> StudyReport:
    """Run the trials of a study that have not ended; those that failed have, those that were lost have not.

    Args:
        overrides: what makes the study grow, such as more `search.trials`.

    Raises:
        RequestError: if it changes otherwise.
    """
    folder = StudyFolder.open(study_dir)
    loaded = folder.grown(load_study(folder.path / STUDY, overrides))
    return _run(loaded, folder, options, watcher)


def _run(loaded: LoadedStudy, begun: StudyFolder | None, options: StudyOptions, watcher: Watcher) -> StudyReport:
    """
    Args:
        begun: the folder of a study that continues; None: a new one is made once it is clear that the study can run.
    """
    require_launched_once()
    if begun is not None and all(begun.has_ended(trial.number) for trial in loaded.trials):
        with locked(begun.path, watcher.note, "study"):
            _keep(loaded, begun, known=_is_known(loaded, begun, allowed=True))
        return write_report(begun)
    if begun is not None:
        begun.require_same_objects(options.objects, watcher.note)
        begun.require_same_code(loaded)
    if loaded.skipped:
        of, first = counted(len(loaded.skipped), "point"), loaded.skipped[0]
        watcher.note(f"{of} skipped, which the report lists; {first.point.label}: {first.reason}")
    known = begun is not None and _is_known(loaded, begun, allowed=options.allow_code)
    specs = [loaded.spec_of(trial) for trial in loaded.trials]
    bundles = [stage_bundles(spec) for spec in specs]
    largest = max(bundles, key=lambda each: sum(bundle.get("CPU", 0.0) for bundle in each))
    with ExitStack() as stack:
        if begun is not None:
            stack.enter_context(locked(begun.path, watcher.note, "study"))
            _keep(loaded, begun, known=known)
        stack.enter_context(sigterm_as_sigint())
        folder = begun
        sessions = _sessions_left(loaded, begun)
        for session in sessions:  # each connects anew, and so starts a Ray and its processes anew
            with environment(**_TUNES), connect(options.address, largest) as connection:
                if session == sessions[0]:
                    for warning in connection.warnings:
                        watcher.note(warning)
                    _require_room(loaded, specs, bundles)
                    if begun is not None:
                        _require_shared(begun, loaded.study.base, specs)
                if folder is None:
                    folder = _made(loaded, options, watcher, specs, stack)
                if loaded.study.sessions > 1:
                    watcher.note(f"session {session + 1} of {loaded.study.sessions}")
                lost = partial(_tell_of_loss, watcher, folder)
                with _naming_the_resume(watcher, folder), told_of_loss(lost):
                    machine = Machine() if connection.own else None
                    if not _run_trials(loaded, specs, folder, options, watcher, machine, session):
                        break
    assert folder is not None, "a study has a session"
    with _naming_the_resume(watcher, folder):
        return write_report(folder)


def _keep(loaded: LoadedStudy, folder: StudyFolder, *, known: bool) -> None:
    """Keep how a study has grown.

    Args:
        known: whether this user knows its code.
    """
    folder.keep(loaded)
    if known and (record := _code_of(loaded, folder)) is not None:
        write_record(folder.path, record)


def _sessions_left(loaded: LoadedStudy, begun: StudyFolder | None) -> list[int]:
    """The sessions with trials that have not ended."""
    return sorted({each.session for each in loaded.trials if begun is None or not begun.has_ended(each.number)})


def _require_room(loaded: LoadedStudy, specs: Sequence[Spec], bundles: Sequence[list[Bundle]]) -> None:
    """Raise PlanError if the cluster can never hold a trial."""
    for trial, spec, each in zip(loaded.trials, specs, bundles, strict=True):
        if not has_room(each, spec.resources.labels):
            raise PlanError(
                f"the cluster can never hold the {len(each)} stages of the trial {trial.label}",
                key="resources.per_stage",
                hint="lower pipeline.stages or resources.per_stage, or attach to a larger cluster",
            )


def _made(
    loaded: LoadedStudy, options: StudyOptions, watcher: Watcher, specs: Sequence[Spec], stack: ExitStack
) -> StudyFolder:
    """The folder of a study that begins, locked until the stack ends."""

    def lock(folder: Path) -> None:
        stack.enter_context(locked(folder, watcher.note, "study"))

    folder = StudyFolder.make(loaded, options.study_dir, options.objects, lock)
    if (record := _code_of(loaded, folder)) is not None:
        write_record(folder.path, record)
    try:
        _require_shared(folder, loaded.study.base, specs)
    except PlanError:
        shutil.rmtree(folder.path)
        raise
    return folder


def _tell_of_loss(watcher: Watcher, folder: StudyFolder, error: StageError) -> None:
    hint = f"continue with `{watcher.resume(folder.path)}`"
    watcher.lost(type(error).of(tuple(replace(problem, hint=hint) for problem in error.problems)))


@contextmanager
def _naming_the_resume(watcher: Watcher, folder: StudyFolder) -> Iterator[None]:
    """A fault of the system in the block becomes an error that says how the study continues."""
    try:
        with system_faults():
            yield
    except SystemFault as fault:
        hint = f"correct this, then continue with `{watcher.resume(folder.path)}`"
        raise type(fault).of(tuple(replace(problem, hint=hint) for problem in fault.problems)) from fault


def _code_of(loaded: LoadedStudy, folder: StudyFolder) -> CodeRecord | None:
    """The code of the user that the trials load, together with the text of the study; None if they load none."""
    if not any(names_code(spec) for spec in (*loaded.specs, *loaded.ends.values())):
        return None
    text = (folder.path / STUDY).read_bytes()
    return CodeRecord.of(code_root(loaded), code_of(loaded), study=sha256(text))


def _is_known(loaded: LoadedStudy, folder: StudyFolder, *, allowed: bool) -> bool:
    """Whether this user began the study on this machine, with this code. Raises RequestError, which names the files, if
    not, unless the user has allowed it."""
    record = _code_of(loaded, folder)
    known = record is None or record == read_record(folder.path)
    if record is not None and not known and not allowed:
        files = [str(loaded.study.base.parent / name) for name in record.files] or [str(folder.path / STUDY)]
        raise refused("code that this study has not run here", files, str(folder.path))
    return known


def _require_shared(folder: StudyFolder, base: Path, specs: Sequence[Spec]) -> None:
    """Raise PlanError if a trial may come to a node that does not see the study folder or the spec of the trials."""
    from alray.runtime.cluster.placement import nodes_without

    bundles: dict[tuple[tuple[str, str], ...], list[Bundle]] = {}
    for spec in specs:
        bundles.setdefault(tuple(sorted(spec.resources.labels.items())), []).extend(stage_bundles(spec))
    hosts = {node.id: node.host for labels, each in bundles.items() for node in holding_nodes(each, dict(labels))}
    token = new_token()
    mark(folder.path, token)
    for sees, what, hint in (
        (partial(is_marked, folder.path, token), f"the study folder {folder.path}", "give an --output"),
        (base.is_file, f"the spec {base}", "put it"),
    ):
        for node in nodes_without(sees, hosts):
            raise PlanError(
                f"a trial may come to {hosts[node]}, which does not see {what}",
                hint=f"{hint} on storage that all nodes share, or choose nodes that see it by resources.labels",
            )


def _run_trials(
    loaded: LoadedStudy,
    specs: Sequence[Spec],
    folder: StudyFolder,
    options: StudyOptions,
    watcher: Watcher,
    machine: Machine | None,
    session: int,
) -> bool:
    """Run the trials of a session that have not ended. Returns whether all came to an end: Ctrl-C leaves some.

    Args:
        specs: those of all trials.
        machine: the one that they run on; None for a cluster that was there before.
    """
    from alray.studies.tuning import TrialListener, run_trials, runs_in_one_process

    study = loaded.study
    unended = [trial for trial in loaded.trials if not folder.has_ended(trial.number)]
    left = {trial.number: trial for trial in unended if trial.session == session}
    began = datetime.now().astimezone().isoformat(timespec="seconds") if study.sessions > 1 else None
    orders = []
    for trial in left.values():
        spec = specs[trial.number]
        order = TrialOrder(
            trial,
            folder,
            study.base,
            one_process=runs_in_one_process(spec),
            keeps_checkpoints=spec.run.checkpoint is not None,
            target=study.target.bound_at(trial.point.values) if study.target is not None else None,
            stop_at=spec.run.stop_at,
            allow_code=options.allow_code,
            objects=options.objects,
            began=began,
        )
        orders.append((order, spec))
    ended_s: list[float] = []

    def again(number: int, reason: str) -> None:
        watcher.note(f"{left[number].label}: {reason}; it runs again")

    def ended(number: int, end: End, at_once: int) -> None:
        trial = left[number]
        record = end if isinstance(end, TrialRecord) else folder.record(number) or record_of(trial, *end, began=began)
        if machine is not None and record.summary is not None:
            others = machine.other_processors(record.summary.duration_s)
            record = record.model_copy(update={"taken_processors": taken_from(record, others, at_once)})
        folder.write(record)  # by a trial on another node it may be written there, and not be seen here for a minute
        ended_s.append(time.monotonic())
        total, missing = len(loaded.trials), len(unended) - len(ended_s)
        left_s = seconds_left(ended_s, at_once, missing)
        shown = record.without_accuracies if study.measures == "times" else record
        watcher.progress(StudyProgress(shown, trial.label, total - missing, total, left_s))

    run_trials(
        orders,
        storage=folder.path / "tune",
        max_concurrent=study.max_concurrent,
        asha=study.trial_scheduler if isinstance(study.trial_scheduler, Asha) else None,
        propose=_proposing(loaded, folder, left),
        listener=TrialListener(again, ended, watcher.note, watcher.stop_requested),
    )
    return len(ended_s) == len(left)


def _proposing(
    loaded: LoadedStudy, folder: StudyFolder, left: dict[int, Trial]
) -> Callable[[int], Mapping[str, Any]] | None:
    """Return a function to choose a trial's settings at its start and put them in `left`; None if all are known."""
    if loaded.study.search is None or loaded.study.search.kind == "random":
        return None
    from alray.studies.proposals import Proposals

    proposals = Proposals(loaded, folder)

    def propose(number: int) -> Mapping[str, Any]:
        left[number] = proposals.with_settings(left[number])
        return left[number].values

    return propose
