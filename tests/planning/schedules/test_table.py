"""The table of schedules: every schedule is whole, drawn as it is simulated, and known by its name nowhere else."""

from __future__ import annotations

import ast
import importlib
import itertools
import pkgutil
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

import alray
from alray.config.sections.pipeline import ScheduleName
from alray.parts import schedules
from alray.planning.prediction.program import Program
from alray.planning.prediction.simulate import simulate
from alray.planning.schedules.actions import ActionKind, parse
from alray.planning.schedules.durations import Durations
from alray.planning.schedules.schedule import Schedule
from alray.planning.schedules.table import SCHEDULES, default_schedule, schedules_for

PACKAGE = Path(alray.__file__).parent
MODULES: dict[str, Any] = {
    module.SCHEDULE.name: module
    for each in pkgutil.iter_modules(schedules.__path__, "alray.parts.schedules.")
    if hasattr(module := importlib.import_module(each.name), "SCHEDULE")
}


def test_every_file_with_a_schedule_is_in_the_table() -> None:
    assert {name: module.SCHEDULE for name, module in MODULES.items()} == SCHEDULES


@pytest.mark.parametrize(
    ("schedule", "stages", "batch_size", "expected"),
    [
        ("gpipe", 4, 256, 8),
        ("1f1b", 3, 256, 8),
        ("1f1b", 5, 256, 16),
        ("interleaved_1f1b", 5, 256, 8),  # rounds of one micro-batch per stage: 16 cannot be shared by three
        ("1f1b", 3, 5, 5),
        ("gpipe", 8, 4, 4),  # it takes fewer than stages
        ("1f1b", 2, 53, 4),  # refused, where it is checked: 53 samples cannot be cut
        ("naive", 3, 256, 1),
    ],
)
def test_the_default_number_of_micro_batches_divides_the_mini_batch(
    schedule: str, stages: int, batch_size: int, expected: int
) -> None:
    assert SCHEDULES[schedule].default_micro_batches(stages, batch_size) == expected


def test_the_spec_takes_exactly_the_names_of_the_table() -> None:
    assert get_args(ScheduleName) == ("auto", *SCHEDULES)


@pytest.mark.parametrize("part", ["name", "methods", "actions"])
def test_a_schedule_that_lacks_a_part_is_refused(part: str) -> None:
    parts = {name: value for name, value in vars(SCHEDULES["streamed"]).items() if name != part}
    with pytest.raises(TypeError, match=part):
        Schedule(**parts)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("single", {"fewest_virtual_stages": 1}, "`single` runs on one stage, so it has no virtual stages"),
        ("single", {"demand": SCHEDULES["gpipe"].demand}, "`single` is no pipeline, so it has no micro-batches"),
    ],
)
def test_parts_that_contradict_each_other_are_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SCHEDULES[name], **changes)


def test_names_differ_and_auto_means_one_schedule_everywhere() -> None:
    assert len(SCHEDULES) == len(list(pkgutil.iter_modules(schedules.__path__)))
    for local, where in itertools.product((True, False), ("one stage", "several stages")):
        assert sum(where in each.default_on for each in schedules_for(local_losses=local)) == 1


def test_defaults() -> None:
    found = {
        (local, stages): default_schedule(local_losses=local, stages=stages).name
        for local in (True, False)
        for stages in (1, 2)
    }
    assert found == {(True, 1): "streamed", (True, 2): "streamed", (False, 1): "single", (False, 2): "1f1b"}


def test_every_schedule_suits_one_family() -> None:
    both = [*schedules_for(local_losses=True), *schedules_for(local_losses=False)]
    assert {schedule.name for schedule in both} == set(SCHEDULES)
    assert len(both) == len(SCHEDULES)


@pytest.mark.parametrize("schedule", SCHEDULES.values())
def test_the_drawing_in_a_files_docstring_is_what_is_simulated(schedule: Schedule) -> None:
    drawn = re.findall(r"^    stage \d   (\S+)$", MODULES[schedule.name].__doc__, re.M)
    stages, virtual = len(drawn), schedule.default_virtual_stages
    forwards = drawn[0].count("F")
    batches = 1 + schedule.gradient_delay if schedule.is_pipeline else forwards
    parts = forwards // virtual // batches
    number = stages * virtual
    whole, update = 1 if schedule.local_losses else 2, 0 if schedule.is_pipeline else 1
    each: dict[ActionKind, int] = {"F": 1, "B": whole, "U": update, "L": 1, "I": 1, "G": 1}
    durations = Durations({kind: [seconds] * number for kind, seconds in each.items()})
    program = Program.of_schedule(schedule, stages, batches, micro_batches=parts, virtual_stages=virtual)
    timeline = simulate(program, durations, in_flight=4)
    rows = [["."] * round(timeline.duration_s) for _ in range(stages)]
    for bar in timeline.bars():
        for second in range(round(bar.start_s), round(bar.end_s)):
            rows[bar.stage][second] = parse(bar.action).kind
    assert ["".join(row) for row in rows] == drawn


@pytest.mark.full
def test_no_name_of_a_schedule_stands_in_code_outside_the_table() -> None:
    found = []
    for path in PACKAGE.rglob("*.py"):
        if path.is_relative_to(PACKAGE / "parts/schedules") or path.is_relative_to(PACKAGE / "planning/schedules"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and node.value in SCHEDULES:
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value}")
    # A class of the style sheet and a class of a page happen to be called so.
    assert [place for place in found if not re.match(r"report/(training_sections|compare_page)", place)] == []
