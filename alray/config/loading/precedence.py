"""Set aside values of the file that rule out what the command line, or a spec on top of a base, sets.

`run.steps=100` on a file with `run.epochs`, `method=backpropagation` on a file with `pipeline.stages: 2`: the
wish is plain, so the file's value is set aside, and a note says so. What the command line or the spec on top asks for
never gives way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from alray.config.loading.messages import meant_kind
from alray.config.loading.source_locations import SourceLocations
from alray.config.sections.data import OwnValidationSection
from alray.config.sections.grammar import child, spot_of_error, spot_of_path
from alray.config.sections.method import DEFAULT, METHODS
from alray.config.sections.paths import Path, key_text
from alray.config.sections.run import LENGTHS
from alray.core.counting import counted
from alray.planning.schedules.listed import is_listed
from alray.planning.schedules.schedule import Schedule
from alray.planning.schedules.table import SCHEDULES, default_schedule, of_package, schedules_for

Done = frozenset[Path]
"""The paths that the command line, or the spec on top, set."""


def set_aside(document: dict[str, Any], done: Done, locations: SourceLocations, of: str = "the file") -> list[str]:
    """Remove from `document` what cannot hold together with what was `done` on top; one note for each thing removed.

    Args:
        of: what the values below come from.
    """
    notes = []
    asked = {key_text(path) for path in done}
    for rule in (_run_and_layout, _method, _schedule, _replicas, _validation):  # a schedule may be set aside itself
        for key, why in rule(document, asked):
            section, name = key.split(".")
            path = (section, name)
            given = any(each[:2] == path for each in done) or locations.is_override(path)
            if not given and _value(document, key) is not None:
                del document[section][name]
                notes.append(f"{key} of {of} is set aside: {why}")
    return notes


_Aside = Iterator[tuple[str, str]]
"""Keys that give way if the file has them, and why."""
_OF_METHOD = {"method", "method.kind"}
"""What the command line sets to choose a method."""


def _value(document: Mapping[str, Any], key: str) -> Any:
    section, name = key.split(".")
    return child(document.get(section), name)


def _run_and_layout(document: dict[str, Any], asked: set[str]) -> _Aside:
    given = [key for key in LENGTHS if f"run.{key}" in asked and _value(document, f"run.{key}") is not None]
    for key in LENGTHS if given else ():
        if key not in given:
            yield f"run.{key}", f"run.{given[0]} says how long to train"
    cut, components = _value(document, "model.cut"), _value(document, "model.components")
    if cut is not None and components not in (None, "auto") and not isinstance(components, list):
        if "model.cut" in asked:
            yield "model.components", "model.cut says where the model is cut"
        elif "model.components" in asked:
            yield "model.cut", f"model.components is {components}"
    stages, partition = _value(document, "pipeline.stages"), _value(document, "pipeline.partition")
    if isinstance(partition, list) and stages not in (None, len(partition)):
        if "pipeline.partition" in asked:
            yield "pipeline.stages", f"pipeline.partition is for {counted(len(partition), 'stage')}"
        elif "pipeline.stages" in asked:
            yield "pipeline.partition", f"pipeline.stages is {stages}"


def _method(document: dict[str, Any], asked: set[str]) -> _Aside:
    kind = _kind(document)
    if kind is None or not asked & _OF_METHOD:
        return
    local_losses, schedule = METHODS.members[kind].local_losses, _value(document, "pipeline.schedule")
    known = [each.name for each in schedules_for(local_losses=local_losses)]
    listed = is_listed(schedule) and not local_losses
    if listed or (of_package(schedule) and SCHEDULES[schedule].local_losses == local_losses):
        known = [schedule]
    if schedule not in (None, "auto", *known):
        yield "pipeline.schedule", f"it is not one for {kind}"
    # Whoever asked for a pipeline wants the stages.
    pipelined = schedule in known and (listed or SCHEDULES[schedule].is_pipeline)
    if not local_losses and not pipelined:
        if _value(document, "pipeline.stages") != 1:
            yield "pipeline.stages", f"{kind} runs on one stage"
        partition = _value(document, "pipeline.partition")
        if isinstance(partition, list) and len(partition) != 1:
            yield "pipeline.partition", f"{kind} runs on one stage"
    if local_losses and _value(document, "replicas.engine") == "ray_train":
        yield "replicas.engine", f"`ray_train` does not train by {kind}"


def _schedule(document: dict[str, Any], asked: set[str]) -> _Aside:
    """What is for some schedules alone."""
    schedule = schedule_in(document) if asked & {"pipeline.schedule", *_OF_METHOD} else None
    if schedule is None:
        return
    recomputes = _value(document, "pipeline.activation_checkpointing")
    by_default = _value(document, "pipeline.schedule") in (None, "auto") and not schedule.local_losses
    if recomputes and not schedule.cuts_mini_batches and not by_default:
        yield "pipeline.activation_checkpointing", f"`{schedule.name}` does not cut mini-batches"


def schedule_in(document: Mapping[str, Any]) -> Schedule | None:
    """The schedule that a document names, or that its method has. None: a file, or none that there is."""
    named, kind = _value(document, "pipeline.schedule") or "auto", _kind(document)
    if kind is None or not isinstance(named, str) or named not in {"auto", *SCHEDULES}:
        return None
    local_losses, stages = METHODS.members[kind].local_losses, _value(document, "pipeline.stages") or 1
    return default_schedule(local_losses=local_losses, stages=stages) if named == "auto" else SCHEDULES[named]


def _kind(document: Mapping[str, Any]) -> str | None:
    return meant_kind(_value(document, "method.kind") or DEFAULT, spot_of_error(("method",)))


def _replicas(document: dict[str, Any], asked: set[str]) -> _Aside:
    """What is for several replicas alone."""
    if "replicas.count" in asked and _value(document, "replicas.count") == 1:
        why = "replicas.count is 1"
        if _value(document, "replicas.sync_batch_norm"):
            yield "replicas.sync_batch_norm", why
        slowed = child(_value(document, "replicas.disturbance"), "workers")
        if isinstance(slowed, list) and any(isinstance(each, int) and each > 0 for each in slowed):
            yield "replicas.disturbance", why


def _validation(document: dict[str, Any], asked: set[str]) -> _Aside:
    """Whoever gives the source its own validation set wants that one."""
    section = spot_of_path(document, ("data",)).section
    if section is None or not issubclass(section, OwnValidationSection):
        return
    below = {key: value for key, value in document["data"].items() if f"data.{key}" not in asked}
    if section.brings_own(document["data"]) and not section.brings_own(below) and below.get("validation_fraction"):
        yield "data.validation_fraction", "the source has its own validation set"
