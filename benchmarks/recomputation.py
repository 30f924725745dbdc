"""Recomputation before the gradient arrives, and after: bits and step time.

    python -m benchmarks.recomputation [CASE...]

Both are alray's executor: by the lists of the schedule, in which C stands before the receive of the gradient, and by
lists in which it stands behind it, as if it were a part of B.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from alray.models.component import Component
from alray.planning.schedules.actions import Action
from benchmarks.engines import BP, HERE, LAPTOP, own
from benchmarks.in_turns import Engine, Place, measure, told
from benchmarks.runs import write_results

LAYER = "model.components.0.block=python:sleeping_blocks.SleepingLayer"
SLEEPING = (BP, LAYER, "data.batch_size=32", "model.components.0.rows=4")
CASES = {
    "4 sleeping": (HERE / "sleeping.yaml", (*SLEEPING, "model.components.0.repeat=4", "pipeline.stages=4"), 8),
    "8 sleeping": (HERE / "sleeping.yaml", (*SLEEPING, "model.components.0.repeat=8", "pipeline.stages=8"), 16),
    "equal_components": (LAPTOP / "equal_components.yaml", (BP, "pipeline.stages=2"), 4),
    "eight": (HERE / "eight.yaml", (BP, "pipeline.stages=2"), 4),
}
SCHEDULES = ("1f1b", "gpipe", "zero_bubble")


def cases() -> Iterator[tuple[str, Path, list[str]]]:
    """Name, spec and overrides of each."""
    for name, (spec, overrides, micro_batches) in CASES.items():
        for schedule in SCHEDULES:
            more = [f"pipeline.schedule={schedule}", f"pipeline.micro_batches={micro_batches}"]
            more.append("pipeline.activation_checkpointing=true")
            yield f"{name}, {schedule}, {micro_batches}", spec, [*overrides, *more]


def after_the_gradient(actions: Sequence[Action]) -> list[Action]:
    """The list in which C follows the receive of the gradient."""
    listed = list(actions)
    for place in range(len(listed) - 1):
        if listed[place].kind == "C" and listed[place + 1].kind == "R":
            listed[place], listed[place + 1] = listed[place + 1], listed[place]
    return listed


def late(place: Place, components: Sequence[Component]) -> Engine:
    """alray's executor with C after the receive of the gradient."""
    return place.executed(components, after_the_gradient(place.plan.actions(place.stage)))


def main(wanted: list[str]) -> None:
    found = {}
    for name, spec, overrides in cases():
        if not wanted or any(name.startswith(each) for each in wanted):
            found[name] = measure(spec, overrides, own, late)
            print(told(name, found[name], "after the gradient"), flush=True)  # noqa: T201
            write_results("recomputation", found)


if __name__ == "__main__":
    main(sys.argv[1:])
