"""The rules of stages and partitions, for the checks of a spec and for a plan that is made without one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from alray.core.counting import counted
from alray.core.errors import PlanError

Fault = tuple[str, str, str]
"""The key below `pipeline` that is wrong, the message, and the hint."""


def refuse(faults: Iterable[Fault]) -> None:
    """Raise PlanError for the first of these, if there is one."""
    for key, message, hint in faults:
        raise PlanError(message, hint=hint, key=f"pipeline.{key}")


def stage_faults(components: int, stages: int, virtual_stages: int = 1) -> Iterator[Fault]:
    """A stage holds at least one component, and so does each of its virtual stages."""
    if stages * virtual_stages <= components:
        return
    if virtual_stages > 1:
        yield (
            "stages",
            f"{counted(stages, 'stage')} with {virtual_stages} virtual stages each, but the model has only "
            f"{counted(components, 'component')}",
            "use fewer of them, or cut the model into more: a virtual stage holds at least one component",
        )
    else:
        yield (
            "stages",
            f"{counted(stages, 'stage')}, but the model has only {counted(components, 'component')}",
            f"give at most {components}: a stage holds at least one component",
        )


def partition_faults(
    partition: Sequence[int], components: int, stages: int, virtual_stages: int = 1
) -> Iterator[Fault]:
    """A partition lays every component on one stage, and has an entry of at least 1 for each (virtual) stage."""
    covered = sum(partition)
    if covered != components:
        yield (
            "partition",
            f"{list(partition)} covers {counted(covered, 'component')}, but the model has {components}",
            "give the number of components of each stage, with `repeat` counted",
        )
    if min(partition, default=1) < 1:
        yield "partition", f"{list(partition)} leaves a stage empty", "give each stage at least one component"
    if len(partition) == stages * virtual_stages:
        return
    if virtual_stages > 1:
        yield (
            "partition",
            f"{list(partition)} has {counted(len(partition), 'entry', 'entries')}, but `stages` is {stages} and "
            f"`virtual_stages` is {virtual_stages}",
            f"give {stages * virtual_stages} entries, one per virtual stage",
        )
    else:
        yield (
            "partition",
            f"{list(partition)} is for {counted(len(partition), 'stage')}, but `stages` is {stages}",
            f"give {stages} entries, one per stage, or leave out `stages` where it is given",
        )
