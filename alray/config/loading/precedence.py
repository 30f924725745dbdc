"""Set aside values of the file that rule out what the command line, or a spec on top of a base, sets.

`run.steps=100` on a file with `run.epochs`, `method=backpropagation` on a file with `pipeline.stages: 2`: the
wish is plain, so the file's value is set aside, and a note says so. What the command line or the spec on top asks for
never gives way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from alray.config.loading.messages import meant_kind
from alray.config.loading.source_locations import SourceLocations
from alray.config.sections.data import OwnValidationSection
from alray.config.sections.grammar import spot_of_error, spot_of_path
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
    for path, why in chain(
        _lengths(document, done),
        _cuts(document, done),
        _stages(document, done),
        _method(document, done),
        _schedule(document, done),  # it may be set aside itself
        _replicas(document, done),
        _validation(document, done),
    ):
        section = document.get(str(path[0]))
        asked = any(each[: len(path)] == path for each in done)
        if isinstance(section, dict) and path[1] in section and not asked and not locations.is_override(path):
            del section[path[1]]
            notes.append(f"{key_text(path)} of {of} is set aside: {why}")
    return notes


def _value(document: Mapping[str, Any], section: str, key: str) -> Any:
    holder = document.get(section)
    return holder.get(key) if isinstance(holder, dict) else None


def _lengths(document: dict[str, Any], done: Done) -> Iterator[tuple[Path, str]]:
    given = [key for key in LENGTHS if ("run", key) in done and _value(document, "run", key) is not None]
    for key in LENGTHS:
        if given and key not in given and _value(document, "run", key) is not None:
            yield ("run", key), f"run.{given[0]} says how long to train"


def _cuts(document: dict[str, Any], done: Done) -> Iterator[tuple[Path, str]]:
    """An imported model is cut at given cut points or into a number of components."""
    cut, components = _value(document, "model", "cut"), _value(document, "model", "components")
    if cut is None or components in (None, "auto") or isinstance(components, list):
        return
    if ("model", "cut") in done:
        yield ("model", "components"), "model.cut says where the model is cut"
    elif ("model", "components") in done:
        yield ("model", "cut"), f"model.components is {components}"


def _stages(document: dict[str, Any], done: Done) -> Iterator[tuple[Path, str]]:
    stages, partition = _value(document, "pipeline", "stages"), _value(document, "pipeline", "partition")
    if not isinstance(partition, list) or stages is None or stages == len(partition):
        return
    if ("pipeline", "partition") in done:
        yield ("pipeline", "stages"), f"pipeline.partition is for {counted(len(partition), 'stage')}"
    elif ("pipeline", "stages") in done:
        yield ("pipeline", "partition"), f"pipeline.stages is {stages}"


def _method(document: dict[str, Any], done: Done) -> Iterator[tuple[Path, str]]:
    if ("method",) not in done and ("method", "kind") not in done:
        return
    kind = meant_kind(_value(document, "method", "kind") or DEFAULT, spot_of_error(("method",)))
    if kind is None:
        return
    section = METHODS.members[kind]
    schedule = _value(document, "pipeline", "schedule")
    known = [each.name for each in schedules_for(local_losses=section.local_losses)]
    if is_listed(schedule):
        known = [schedule] if not section.local_losses else known
    elif of_package(schedule) and SCHEDULES[schedule].local_losses == section.local_losses:
        known = [schedule]
    if schedule not in (None, "auto", *known):
        yield ("pipeline", "schedule"), f"it is not one for {kind}"
    # Whoever asked for a pipeline wants the stages.
    pipelined = schedule in known and (is_listed(schedule) or SCHEDULES[schedule].is_pipeline)
    if not section.local_losses and not pipelined:
        if _value(document, "pipeline", "stages") not in (None, 1):
            yield ("pipeline", "stages"), f"{kind} runs on one stage"
        partition = _value(document, "pipeline", "partition")
        if isinstance(partition, list) and len(partition) != 1:
            yield ("pipeline", "partition"), f"{kind} runs on one stage"
    if section.local_losses and _value(document, "replicas", "engine") == "ray_train":
        yield ("replicas", "engine"), f"`ray_train` does not train by {kind}"


def _schedule(document: dict[str, Any], done: Done) -> Iterator[tuple[Path, str]]:
    """What is for some schedules alone."""
    if not done & {("pipeline", "schedule"), ("method",), ("method", "kind")}:
        return
    schedule = schedule_in(document)
    if schedule is None:
        return
    if _value(document, "optimizer", "look_ahead") and not schedule.gradient_delay:
        yield ("optimizer", "look_ahead"), f"the gradients of `{schedule.name}` are not late"
    recomputes = _value(document, "pipeline", "activation_checkpointing")
    by_default = _value(document, "pipeline", "schedule") in (None, "auto") and not schedule.local_losses
    if recomputes and not schedule.cuts_mini_batches and not by_default:
        yield ("pipeline", "activation_checkpointing"), f"`{schedule.name}` does not cut mini-batches"


def schedule_in(document: Mapping[str, Any]) -> Schedule | None:
    """The schedule that a document names, or that its method has. None: a file, or none that there is."""
    named = _value(document, "pipeline", "schedule") or "auto"
    kind = meant_kind(_value(document, "method", "kind") or DEFAULT, spot_of_error(("method",)))
    if kind is None or not isinstance(named, str) or named not in {"auto", *SCHEDULES}:
        return None
    local_losses, stages = METHODS.members[kind].local_losses, _value(document, "pipeline", "stages") or 1
    return default_schedule(local_losses=local_losses, stages=stages) if named == "auto" else SCHEDULES[named]


def _replicas(document: dict[str, Any], done: Done) -> Iterator[tuple[Path, str]]:
    """What is for several replicas alone."""
    if ("replicas", "count") not in done or _value(document, "replicas", "count") != 1:
        return
    why = "replicas.count is 1"
    if _value(document, "replicas", "sync_batch_norm"):
        yield ("replicas", "sync_batch_norm"), why
    disturbance = _value(document, "replicas", "disturbance")
    slowed = disturbance.get("workers") if isinstance(disturbance, dict) else None
    if isinstance(slowed, list) and any(isinstance(each, int) and each > 0 for each in slowed):
        yield ("replicas", "disturbance"), why


def _validation(document: dict[str, Any], done: Done) -> Iterator[tuple[Path, str]]:
    """Whoever gives the source its own validation set wants that one."""
    section = spot_of_path(document, ("data",)).section
    if section is None or not issubclass(section, OwnValidationSection):
        return
    below = {key: value for key, value in document["data"].items() if ("data", key) not in done}
    if section.brings_own(document["data"]) and not section.brings_own(below) and below.get("validation_fraction"):
        yield ("data", "validation_fraction"), "the source has its own validation set"
