"""Resuming a run. Unless the user allows more, a resume may change how a run is laid out on devices, how long it is and
what it writes, and never what it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from alray.config.loading.data_files import keys_of_files, missing_files
from alray.config.loading.inputs import load_own_spec, names_code
from alray.config.loading.load import LoadedSpec, load_spec
from alray.config.loading.source_locations import SourceLocations
from alray.config.objects import NO_OBJECTS, Objects, require_objects
from alray.config.sections.data import OwnData, TextSection, TokenSection
from alray.config.sections.paths import is_under
from alray.config.sections.replicas import AverageEvery
from alray.config.sections.spec import Spec
from alray.config.user_code import UserCode
from alray.core.counting import counted
from alray.core.errors import CheckpointError, DataError, Problem, SpecError, printable
from alray.core.run_folder.data_identity import DataIdentity
from alray.core.run_folder.records import Summary, read, read_summary
from alray.core.run_folder.store import data_of, latest_manifest, require_run_dir
from alray.core.storage.location import Location
from alray.data.dataset import Dataset
from alray.data.form import DataForm, form_in
from alray.models.network import Network
from alray.planning.prediction.plan import Plan
from alray.planning.prediction.recorded import recorded_plans, with_whole_plans
from alray.planning.schedules.table import SCHEDULES
from alray.runtime.runner.provenance import require_own_spec
from alray.runtime.stage.assignment import Start, start_from
from alray.runtime.stage.checkpoint import CheckpointFiles, optimizer_file, require_component, weights_file
from alray.runtime.workload import Workload

_LAYOUT = ("pipeline", "resources.per_stage", "resources.labels", "data.workers")
"""Keys that a run that is done again may change, besides where the files of the data lie (`keys_of_files`). Of
`pipeline`, `_changes_of_pipeline` finds what changes the mathematics."""
_FREE = (
    "name",
    "machines",
    "data.assume",
    "run.checkpoint",
    "run.test",
    "run.train",
    "run.max_failures",
    "run.deadline_s",
    "run.stop_at",
    "run.trackers",
)
"""Keys that a resume may change besides."""
_IN_ANY_ORDER = 2
"""Up to this many replicas, gradients add up to the same bits in every order."""
_LENGTH = ("run.epochs", "run.steps", "run.samples")
_OF_METRIC = ("run.evaluate_every", "task.metric")
"""Keys that a rate follows which follows the metric."""
_MICRO_BATCHES = "pipeline.micro_batches"


@dataclass(frozen=True)
class Resumed:
    """A run to continue: its spec `before`, and its spec with the overrides of the resume."""

    run_dir: Location
    before: Spec
    spec: Spec
    manifest: dict[str, Any] | None
    """Manifest of the last checkpoint; None if there is none yet."""
    allow_change: bool
    """Whether the run may become another one."""
    locations: SourceLocations
    """Where the values of `spec` are, in the run folder and on the command line."""

    @property
    def trained(self) -> bool:
        return self.manifest is not None

    @classmethod
    def open(cls, run_dir: Location, overrides: list[str], *, allow_change: bool, again: bool = False) -> Resumed:
        """The run with these overrides, to go on from its last checkpoint.

        Raises CheckpointError if this is no run folder. Raises SpecError if `spec.yaml` was changed by hand, or if
        an override changes the mathematics of the run, unless `allow_change` is set. Raises DataError if files of the
        data are not there.

        Args:
            again: to be done once more from its beginning instead. Only the layout on devices and the paths of files
                may change then.
        """
        run_dir = require_run_dir(run_dir)
        if not allow_change:
            require_own_spec(run_dir)
        file = run_dir / "spec.yaml"
        manifest = latest_manifest(run_dir)
        before = load_own_spec(run_dir).spec
        loaded = _with_overrides(file, overrides)
        after = loaded.spec
        if changes := [] if allow_change else _changes(before, after, again=again):
            otherwise = "or start a new run"
            if not again:
                otherwise = "start a new run, or pass --allow-change, if no weight gets another shape"
            raise SpecError(
                f"these values would make it another run: {', '.join(changes)}",
                file=str(run_dir),
                hint=f"leave them as they were, {otherwise}",
            )
        with loaded.locations.locating():
            _require_files(after)
        return cls(run_dir, before, after, manifest, allow_change, loaded.locations)

    def code(
        self, *, allow: bool, objects: Objects = NO_OBJECTS, note: Callable[[str], None] = lambda line: None
    ) -> UserCode:
        """The user's code of the run.

        Args:
            allow: also a stranger's.
            objects: that a Python program gave.
            note: as for `UserCode.of_run`.

        Raises:
            RequestError: if it may not run, or if objects of the run were not given.
        """
        require_objects(self.spec, objects, self.run_dir)
        return UserCode.of_run(self.run_dir, allow=allow, named=names_code(self.spec), objects=objects, note=note)

    def at_last(self) -> Resumed:
        """With the last checkpoint there is now: a process that was at work here may have written more of them, until
        it saw that another one has marked the run folder."""
        return replace(self, manifest=latest_manifest(self.run_dir))

    def require_whole_checkpoint(
        self, network: Network | None = None, note: Callable[[str], None] = lambda text: None
    ) -> None:
        """Raise CheckpointError if a file of the last checkpoint that there is now is missing or damaged, or if another
        network or another optimizer is to go on from it.

        The stages would find it too, but by then the resume has changed `spec.yaml`, and deleted `summary.json`.

        Args:
            network: that is to go on; None: it is the same one.
            note: hears of states of optimizers that are left out.
        """
        manifest = latest_manifest(self.run_dir)
        if manifest is None:
            return
        files = CheckpointFiles.of(self.run_dir, manifest)
        compared: set[str] = set()
        try:
            if network is not None and self.allow_change:
                saved = sum(manifest["partition"])
                if saved != len(network):
                    raise CheckpointError(
                        f"the checkpoint has {counted(saved, 'component')}, the network now has {len(network)}",
                        file=str(files.folder),
                        hint="leave the model as it was, or start a new run",
                    )
                for index in range(saved):
                    if require_component(network.component(index, "meta"), files):
                        note(
                            f"what component {index} has trained is frozen now: checkpoints from here on leave out the "
                            "state of its optimizer, without which no resume can train it again"
                        )
                    compared |= {weights_file(index), optimizer_file(index)}
            for file in files.hashes:
                if file not in compared:
                    files.read(file)
        except CheckpointError:
            if latest_manifest(self.run_dir) == manifest:
                raise
            # A process that is at work here has deleted this one: see `at_last`.
            self.require_whole_checkpoint(network, note)

    @property
    def start(self) -> Start:
        """Where the run continues."""
        return start_from(self.run_dir, self.manifest) if self.manifest is not None else Start()

    @cached_property
    def spent_s(self) -> float:
        """How long the run took so far: 0 if it was killed before its first record. Raises CheckpointError for records
        of which no summary can be made."""
        file = self.run_dir / "records.jsonl"
        try:
            return max((record.time_s for record in with_whole_plans(read(file), file)), default=0.0)
        except FileNotFoundError:
            return 0.0

    def require_longer(self, workload: Workload | None = None) -> None:
        """Raise SpecError if the resume asks for fewer mini-batches than the run has done, or for no more of them where
        an epoch has another number of them than before.

        Args:
            workload: None: the data are not open, an epoch is as long as it was.
        """
        if self.manifest is None or (workload is None and self.allow_change):
            return
        key, number = _length(self.spec)
        done = self.manifest["step"]
        per_epoch = round(done / self.manifest["epoch"])
        if workload is None:
            total, other_epochs = {"run.epochs": number * per_epoch, "run.steps": number}.get(key, done), False
        else:
            total, other_epochs = workload.total_steps, workload.facts.steps_per_epoch != per_epoch
        if total < done or (total == done and other_epochs):
            raise SpecError(
                f"the run has done {done:,} mini-batches, and {key}={number} makes {total:,}",
                file=str(self.run_dir),
                hint=f"give more of {key}, or leave `data` as it was" if other_epochs else "give more, or leave it out",
            )

    def finished(self, workload: Workload, note: Callable[[str], None]) -> Summary | None:
        """The summary of a run that is finished and has nothing left to do, which is noted; otherwise None.

        It names the run folder where it lies now: it may have been moved, or fetched from a cluster.

        Raises SpecError if the resume asks for no more than the run has done, and DataError if these are other data
        than those of the run, unless changes are allowed.

        Args:
            workload: as it is asked for now.
        """
        self._compare_data(workload.facts.identity, note)
        self.require_longer(workload)
        self._compare_constants(workload.data, note)
        summary = read_summary(self.run_dir)
        if self.manifest is None or summary is None:
            return None
        step, total_steps = self.manifest["step"], workload.total_steps
        standing = self.start.standing.of_metric(self.spec.task.measures.name)
        stop_at = self.spec.run.stop_at
        over = step >= total_steps or (stop_at is not None and standing.step == step and stop_at.reached(standing))
        if not over or summary.status != "finished" or summary.steps != step:
            return None
        more = f"raise {_length(self.spec)[0]}" if step >= total_steps else "change run.stop_at"
        note(f"nothing is left to do: the run has finished after {step:,} mini-batches; {more} to train on")
        page = summary.report and printable(str(self.run_dir / summary.report.rpartition("/")[2]))
        return summary.model_copy(update={"run_dir": printable(str(self.run_dir)), "report": page})

    def _compare_data(self, data: DataIdentity, note: Callable[[str], None]) -> None:
        """Raise DataError if these are other data than before. Changes that are allowed are noted. Another
        vocabulary never is, because the network knows words by their numbers."""
        before = data_of(self.manifest)
        changes = data.changes(before)
        # What a language model predicts are the tokens that it reads, so they are its classes too.
        vocabulary = "classes" if isinstance(self.spec.data, TokenSection) else "words"
        if self.allow_change and changes and vocabulary not in changes:
            why = "; ".join(changes.values())
            note(f"the weights will not be those of an unbroken run, for the data changed: {why}")
            return
        found = [f"say where they lie now: {key}=PATH" for key in _file_keys(self.spec)[:1]]
        allowed = [] if vocabulary in changes else ["pass --allow-change"]
        hint = ", or ".join(["leave `data` as it was and restore its files", *found, *allowed])
        differences = _differences(self.before.model_dump(mode="json"), self.spec.model_dump(mode="json"))
        changed = (key for key, *_ in differences if is_under(key, ("data", "seed")) and not is_under(key, _LAYOUT))
        data.require_same(before, "this run", key=next(changed, "data"), hint=hint)

    def _compare_constants(self, data: Dataset, note: Callable[[str], None]) -> None:
        """Note it if samples or targets are standardised otherwise than before."""
        if self.trained and form_in(self.run_dir).constants != DataForm.of(data).constants:
            note(
                "the weights will not be those of an unbroken run: samples or targets are standardised by other means "
                "and deviations than before"
            )

    def notes(self, plan: Plan, environment: dict[str, Any], *, on_cpu: bool) -> list[str]:
        """Why the weights may not have the bits of an unbroken run, a line for each reason.

        Args:
            environment: as `alray.runtime.device.devices.environment` gives it here, with `brought_by`.
        """
        if self.manifest is None:
            return []
        notes = [
            f"the weights will not be those of an unbroken run, for this changes: {change}"
            for change in _changes(self.before, self.spec)
        ]
        if isinstance(self.spec.replicas.synchronise, AverageEvery):
            written_by = self._replicas_of(self.manifest["step"])
            if plan.replicas != written_by:
                notes.append(
                    "all replicas continue from the mean of the weights and the optimizers of replica 0: the run was "
                    f"on {counted(written_by, 'replica')}"
                )
        recorded = self.manifest["environment"]
        changed = [
            f"{key} was {recorded[key]}, is {environment[key]}"
            for key in ("device", "torch")
            if recorded[key] != environment[key]
        ]
        brought_by = recorded["brought_by"]
        changed += [
            f"{name} was of {brought_by.get(name)}, is of {origin}"
            for name, origin in environment["brought_by"].items()
            if brought_by.get(name) != origin
        ]
        if changed:
            notes.append(f"the weights will not be bit-equal to those of an unbroken run: {'; '.join(changed)}")
        replicas = self.spec.replicas
        anew = replicas.compression.ddp_begins_anew
        if replicas.engine == "ray_train" and (plan.replicas > _IN_ANY_ORDER or anew):
            notes.append(
                "the weights may not be bit-equal to those of an unbroken run: with `ray_train`, torch's DDP adds up "
                "gradients in other buckets after a start"
                + (f", and its `{replicas.compression.kind}` begins anew" if anew else "")
            )
        layout = _layout(self.before, self.manifest["partition"])
        new_layout = _layout(self.spec, plan.partition)
        if not self.spec.method.local_losses and layout != new_layout and not on_cpu:
            notes.append(
                "the weights will equal those of an unbroken run up to rounding; tests hold the same bits on a CPU "
                f"only: backpropagation ran on {layout}, and continues with {new_layout}"
            )
        return notes

    def changes(self, data: DataIdentity) -> list[str]:
        """What this resume changes in the mathematics of a run that has begun: values of the spec, and the data."""
        if self.manifest is None:
            return []
        return [*_changes(self.before, self.spec), *data.changes(data_of(self.manifest)).values()]

    def _replicas_of(self, step: int) -> int:
        """On how many replicas the run was when it wrote the checkpoint after `step` mini-batches: fewer than the spec
        says where it had lost a node."""
        earlier = [(at, plan) for at, plan in recorded_plans(self.run_dir / "records.jsonl").items() if at < step]
        return max(earlier, key=lambda each: each[0])[1].replicas if earlier else self.before.replicas.count


def _require_files(spec: Spec) -> None:
    """Raise DataError for all files of the data that are not there."""
    problems = [
        Problem(message, f"say where it lies now: data.{key}=PATH", key=f"data.{key}")
        for key, message in missing_files(spec)
    ]
    if problems:
        raise DataError.of(tuple(problems))


def _file_keys(spec: Spec) -> list[str]:
    """The keys that say where the files of the data lie."""
    return [f"data.{key}" for key in keys_of_files(spec.data)]


def _length(spec: Spec) -> tuple[str, int]:
    """The key that gives the length of a run, and its value."""
    given = ((key, getattr(spec.run, key.removeprefix("run."))) for key in _LENGTH)
    return next((key, value) for key, value in given if value is not None)


def _layout(spec: Spec, partition: Sequence[int]) -> str:
    """Schedule and partition. On one stage every schedule does the same: it goes through the micro-batches in turn."""
    return f"`{spec.schedule_name}`, partition {list(partition)}" if len(partition) > 1 else "one stage"


def _with_overrides(file: Location, overrides: list[str]) -> LoadedSpec:
    """The spec with these overrides. Mini-batches that are cut stay cut as in the file, whatever the number of stages,
    unless the layout that the overrides ask for cannot have as many micro-batches.

    Relative paths begin in the current folder.
    """
    load = partial(load_spec, file, directory=Path.cwd())
    try:
        return load(overrides)
    except SpecError as error:
        if any(problem.key != _MICRO_BATCHES for problem in error.problems):
            raise
    return load([f"{_MICRO_BATCHES}=null", *overrides])


def _changes(before: Spec, after: Spec, *, again: bool = False) -> list[str]:
    """What a resume is not free to change, in words.

    Args:
        again: what a run that is done again is not free to change instead.
    """
    free = [*_LAYOUT, *_file_keys(after)]
    if not again:
        free += _FREE
        if not after.lr_schedule.ends_with_run:  # its decay would take another course
            free += _LENGTH
        if not after.lr_schedule.follows_metric:
            free += _OF_METRIC
    changes = {
        key: _change(key, old, new)
        for key, old, new in _differences(before.model_dump(mode="json"), after.model_dump(mode="json"))
        if not is_under(key, free)
    }
    if "replicas.count" in changes and isinstance(before.replicas.synchronise, AverageEvery):
        why = "each replica has its own weights; another number of them begins with the mean"
        changes["replicas.count"] += f" ({why})"
    if before.replicas.kept != after.replicas.kept:
        for key in changes:
            if is_under(key, ("replicas.compression", "replicas.synchronise")):
                changes[key] += " (what replicas keep for it from step to step begins anew)"
    return [*changes.values(), *_changes_of_pipeline(before, after)]


def _changes_of_pipeline(before: Spec, after: Spec) -> list[str]:
    """The changes of `pipeline` that change the mathematics: how mini-batches are cut, how wide text is padded,
    whether gradients are late, and how messages are rounded.

    Else partition, stages, virtual stages and the order of work do not: random numbers are drawn from seed, component,
    step and micro-batch, and every component takes the micro-batches in order and adds up their gradients in that
    order.
    """
    own, others = SCHEDULES[before.schedule], SCHEDULES[after.schedule]
    # What `auto` comes to is known only after planning, and may be another number.
    number = "auto" if after.pipeline.micro_batches == "auto" else after.micro_batches
    cut = _change(_MICRO_BATCHES, before.micro_batches, number)
    schedule = _change("pipeline.schedule", before.schedule_name, after.schedule_name)
    table = (
        (
            before.micro_batches != number,
            f"{cut} (sums are rounded otherwise, and each micro-batch has its own random numbers and batch statistics)",
        ),
        (
            own.is_pipeline != others.is_pipeline and _has_text(after),
            f"{schedule} (a pipeline pads text to `max_tokens`, so random numbers fall on other words)",
        ),
        (
            _lists(before) != _lists(after) and not (own.in_order and others.in_order),
            f"{schedule} (micro-batches, or the sums of their gradients, have another order)",
        ),
        (own.gradient_delay != others.gradient_delay, f"{schedule} (the gradients of one of them are an update late)"),
        (
            before.pipeline.messages != after.pipeline.messages,
            "`pipeline.messages` (what components send each other would be rounded otherwise)",
        ),
    )
    return [change for differs, change in table if differs]


def _lists(spec: Spec) -> str:
    """What the schedule of a spec is: of a file what it lists, whatever its name."""
    return spec.schedule.partition("\n")[2] or spec.schedule


def _has_text(spec: Spec) -> bool:
    return isinstance(spec.data, TextSection) or (isinstance(spec.data, OwnData) and spec.data.text is not None)


def _differences(before: Any, after: Any, key: str = "") -> list[tuple[str, Any, Any]]:
    """Keys whose values differ, each with its value before and after."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            difference
            for name in {**before, **after}
            for difference in _differences(before.get(name), after.get(name), f"{key}.{name}" if key else str(name))
        ]
    return [] if before == after else [(key, before, after)]


def _change(key: str, old: Any, new: Any) -> str:
    """The change in words; without the values if one of them is a list or a section."""
    if isinstance(old, dict | list) or isinstance(new, dict | list):
        return f"`{key}`"
    shown = ["null" if value is None else str(value) for value in (old, new)]
    return f"`{key}` from {shown[0]} to {shown[1]}"
