"""plan: what would run where."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alray.plan.plan import Plan

GIVEN = "pipeline.costs=[" + ", ".join(["{forward_s: 0.001, backward_s: 0.002, update_s: 0.001}"] * 3) + "]"


def test_a_counted_plan_says_that_it_is_estimated(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("plan", spec)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("tiny: associated_learning, streamed, 2 stages, partition [")
    assert "estimated by counting" in said.out and "(estimated)" in said.out
    assert all(line == line.rstrip() for line in said.out.splitlines())


def test_given_costs_in_tables_chart_and_figures(
    alray: Callable[..., Any], spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})  # one for each stage
    lines = alray("plan", spec, GIVEN, "pipeline.partition=[1, 2]").out.splitlines()
    assert "    1      1 to 2  2.00 ms  4.00 ms  2.00 ms  8.00 ms" in lines
    assert any(line.startswith("stage 0  FB0-U0FB1") for line in lines)
    assert "bound       8.00 ms, max(F+B)" in lines
    assert "limited by  stage 1 is 33 % slower than the mean; no other cut is better" in lines
    assert any(line.startswith("edge 0->1   ") and line.endswith("4 in flight") for line in lines)
    assert not any("(estimated)" in line for line in lines)


def test_a_probe_measures(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("plan", spec, "--probe")
    assert "costs measured here" in said.out
    assert "estimated" not in said.out


def test_json_is_the_plan(alray: Callable[..., Any], spec: Path) -> None:
    plan = Plan.from_json(alray("plan", spec, "pipeline.partition=[2, 1]", "--json").json)
    assert plan.partition == (2, 1)
    assert plan.costs.source == "estimated"


def test_the_schedule_is_drawn_into_a_file(alray: Callable[..., Any], spec: Path) -> None:
    assert alray("plan", spec, "--svg", "schedule.svg").out.endswith("drawn in schedule.svg\n")
    assert Path("schedule.svg").read_text().startswith("<svg ")
    assert alray("plan", spec, "--svg", "nowhere/a.svg").code == 2


def test_notes_on_overrides_stand_beside_the_plan(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("plan", spec, "method=backpropagation", "--json")
    assert said.json["method"] == "backpropagation"
    assert "pipeline.stages of the file is set aside: backpropagation runs on one stage\n" in said.err
