"""The figures a display shows, and the two displays."""

from __future__ import annotations

import io
import os
import signal
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from alray.api.console import display as displays
from alray.api.console.display import PlainLines, accuracies_text, plan_line, progress_text
from alray.api.console.interrupts import Interrupts
from alray.api.console.live import LiveDisplay, frame
from alray.core.run_folder.records import (
    DepthScores,
    EvaluationRecord,
    EventRecord,
    PlanRecord,
    StageRecord,
    StepRecord,
)
from alray.planning.prediction.costs import ComponentCosts, Costs
from alray.planning.prediction.plan import Plan
from alray.report.progress import Progress

from ..plans import plan_on_two_stages
from .conftest import Tty

DATE = "1970-01-01T00:00:00+00:00"
COMPONENT = ComponentCosts("vgg", 0.001, 0.002, 0.001, 0.001, 0.001, 9, 36, 36, 72, 640, 160, 160, 40, (1, 4, 4))
COSTS = Costs("given", "cpu", 1, 10, (COMPONENT,) * 2, edge_latency_s=0.0, edge_s_per_byte=0.0)


@pytest.fixture
def plan() -> Plan:
    """Two components on two stages, ten mini-batches of ten samples an epoch, two epochs."""
    return plan_on_two_stages(COSTS, total_steps=20, evaluation_batches=1)


def single(plan: Plan) -> Plan:
    """The same run on one stage."""
    return plan_on_two_stages(COSTS, method=plan.method, stages=1, total_steps=20, evaluation_batches=1)


def place(step: int, time_s: float) -> dict[str, Any]:
    return {"time_s": time_s, "step": step, "epoch": step / 10, "samples": 10 * step}


def step(number: int, time_s: float, loss: float = 1.0) -> StepRecord:
    losses = {component: {"associated": loss, "autoencoder": 2 * loss} for component in (0, 1)}
    return StepRecord(**place(number, time_s), losses=losses, lr=0.1)


def stage(number: int, compute_s: float, *, warm_up: bool = False) -> StageRecord:
    return StageRecord(
        **place(5, 1.0),
        stage=number,
        replica=0,
        steps=5,
        warm_up=warm_up,
        forward_s=compute_s,
        backward_s=0.0,
        update_s=0.0,
        compute_s=compute_s,
        send_wait_s=0.1,
        receive_wait_s=0.1,
        idle_s=0.8 - compute_s,
        evaluation_s=0.0,
        step_times_s=[0.2] * 5 if number == 1 else [],
        bytes_sent={},
        peak_memory_bytes=None,
    )


def evaluation(number: int) -> EvaluationRecord:
    per_depth = [DepthScores(depth=depth, validation=0.25 * depth, test=0.5) for depth in (1, 2)]
    return EvaluationRecord(**place(number, 2.0), validation=0.5, test=0.5, per_depth=per_depth, duration_s=0.1)


def test_pace_and_time_left(plan: Plan) -> None:
    progress = Progress(plan)
    assert (progress.samples_per_s, progress.left_s, progress.losses) == (None, None, {})
    for number in range(1, 6):
        progress.take(step(number, 0.5 * number, loss=number))
    assert progress.samples_per_s is None, "no step time was measured by now"
    progress.take(stage(1, 0.5, warm_up=True))
    assert progress.samples_per_s is None
    progress.take(stage(1, 0.5))
    assert progress.samples_per_s == pytest.approx(10 / 0.2)
    assert progress.left_s == pytest.approx(7.5)
    assert progress.losses[1] == {"associated": 3.0, "autoencoder": 6.0}
    assert progress_text(progress) == "epoch 0.50 of 2, mini-batch 5 of 20, 50 samples/s, 7.50 s left"
    part = Progress(replace(plan, steps_per_epoch=17, total_steps=79))
    assert progress_text(part) == "epoch 0.00 of 4.65, mini-batch 0 of 79"


def test_what_was_lost_does_not_count(plan: Plan) -> None:
    progress = Progress(plan)
    for number in range(1, 9):
        progress.take(step(number, 0.1 * number))
    progress.take(EventRecord(**place(4, 30.0), event="resumed", message="continuing from mini-batch 4", date=DATE))
    assert (progress.step, progress.samples_per_s, progress.losses) == (4, None, {})
    progress.take(step(5, 40.0))
    progress.take(step(6, 41.0))
    assert progress.left_s == pytest.approx(14.0)


def test_share_of_time_computing(plan: Plan) -> None:
    progress = Progress(plan)
    progress.take(stage(0, 0.1, warm_up=True))
    assert progress.computing == {}
    progress.take(stage(1, 0.5))
    progress.take(stage(0, 0.8))
    assert progress.computing == pytest.approx({0: 0.8, 1: 0.5})


def test_the_plan_and_an_evaluation_in_a_line(plan: Plan) -> None:
    assert plan_line(plan) == "2 stages [1, 1], streamed: predicted 4.00 ms a mini-batch, bubble 0.0 %"
    assert plan_line(replace(plan, in_turns=True, predicted_bubble=None)).endswith("no bubble, for they take turns")
    said = accuracies_text(evaluation(10))
    assert said == "after mini-batch 10: validation 0.5000, test 0.5000, validation by depth 0.250 0.500"


def test_a_plan_that_is_too_large_says_so_before_it_runs(plan: Plan) -> None:
    stream = io.StringIO()
    with Interrupts() as interrupts, PlainLines(stream, interrupts) as display:
        display.planned(replace(plan, too_large="stage 1 needs more than its device has"))
    assert "stage 1 needs more" in stream.getvalue()


def test_plain_lines_every_five_seconds(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(displays.time, "monotonic", lambda: clock[0])
    stream = io.StringIO()
    with Interrupts() as interrupts, PlainLines(stream, interrupts) as display:
        display.planned(plan)
        display.record(EventRecord(**place(0, 0.0), event="started", message="not told", date=DATE))
        for number in range(1, 13):
            clock[0] += 1.0
            display.record(step(number, float(number)))
            display.statuses([])
        display.record(evaluation(12))
        display.record(EventRecord(**place(12, 12.0), event="warning", message="mind the gap", date=DATE))
    said = stream.getvalue().splitlines()
    shown = [line for line in said if line.startswith("  epoch")]
    assert [line.split(",")[1] for line in shown] == [" mini-batch 5 of 20", " mini-batch 10 of 20"]
    assert shown[0].endswith("; associated 1 1; autoencoder 2 2")
    assert said[-1] == "mind the gap" and said[-2].startswith("after mini-batch 12: validation")
    assert not any("not told" in line for line in said)


def test_a_failure_is_told_once(plan: Plan) -> None:
    stream = io.StringIO()
    with Interrupts() as interrupts, PlainLines(stream, interrupts) as display:
        display.planned(plan)
        display.record(EventRecord(**place(3, 0.0), event="resumed", message="continuing from mini-batch 3", date=DATE))
        display.record(EventRecord(**place(4, 1.0), event="failure", message="stage 1 died", stage=1, date=DATE))
        display.note("stage 1 died; continuing from mini-batch 3")
        display.record(EventRecord(**place(3, 2.0), event="resumed", message="continuing from mini-batch 3", date=DATE))
    assert stream.getvalue().splitlines()[1:] == [
        "continuing from mini-batch 3",
        "stage 1 died; continuing from mini-batch 3",
    ]


def test_mini_batches_that_are_done_again_are_shown(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line every five seconds, from the checkpoint on at once: not only where the run was before the failure."""
    now = 0.0
    monkeypatch.setattr(displays, "time", SimpleNamespace(monotonic=lambda: now))
    stream = io.StringIO()
    with Interrupts() as interrupts, PlainLines(stream, interrupts, now) as display:
        display.planned(plan)

        def after(number: int) -> list[str]:
            nonlocal now
            now += 6.0
            display.record(step(number, now))
            display.statuses([])
            return stream.getvalue().splitlines()

        after(17)
        display.record(EventRecord(**place(8, 7.0), event="resumed", message="continuing from mini-batch 8", date=DATE))
        after(9)
        assert "mini-batch 9 of 20" in stream.getvalue().splitlines()[-1]


def test_after_a_failure_the_stages_are_those_of_the_new_plan(plan: Plan) -> None:
    progress = Progress(plan)
    for record in (step(10, 1.0), stage(1, 0.5), stage(0, 0.8), evaluation(10)):
        progress.take(record)
    progress.take(EventRecord(**place(5, 3.0), event="resumed", message="continuing from mini-batch 5", date=DATE))
    progress.take(PlanRecord(**place(5, 3.0), plan=single(plan).as_json()))
    progress.take(step(6, 4.0))
    assert (progress.plan.stages, progress.computing, progress.evaluation) == (1, {}, None)
    progress.take(stage(0, 0.5).model_copy(update={"step_times_s": [0.5] * 5}))
    assert progress.computing == pytest.approx({0: 0.2})


def test_what_is_drawn_on_a_terminal(plan: Plan) -> None:
    progress = Progress(plan)
    for record in (step(5, 1.0), step(6, 1.5), stage(1, 0.5), stage(0, 0.8), evaluation(6)):
        progress.take(record)
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    with console.capture() as capture:
        console.print(frame(progress, 100))
    drawn = [line.rstrip() for line in capture.get().splitlines()]
    assert drawn[1] == "epoch 0.60 of 2, mini-batch 6 of 20, 50 samples/s, 7.00 s left"
    assert drawn[2:5] == ["stages computing 80.0 %, 50.0 %", "associated 1 1", "autoencoder 2 2"]
    assert drawn[5].startswith("after mini-batch 6: validation")


def test_a_live_display_leaves_the_terminal_as_it_was(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Tty()
    with Interrupts() as interrupts, LiveDisplay(stream, interrupts) as display:
        display.planned(plan)
        display.doing("starting the stages")
        display.record(step(1, 1.0))
        display.statuses([])
        display.note("[not markup]")
    assert "2 stages [1, 1], streamed" in stream.getvalue()
    assert "starting the stages" in stream.getvalue()
    assert "[not markup]\n" in stream.getvalue()
    assert "mini-batch 1 of 20" in stream.getvalue()
    hide, show = "\x1b[?25l", "\x1b[?25h"  # the cursor
    assert stream.getvalue().rindex(show) > stream.getvalue().rindex(hide)


def test_what_is_done_is_said_with_the_time_so_far(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(displays.time, "monotonic", lambda: clock[0])
    stream = io.StringIO()
    with Interrupts() as interrupts, PlainLines(stream, interrupts, began_s=99.8) as display:
        display.doing("reading x.yaml")
        clock[0] += 2.0
        display.doing("opening the data")
    assert stream.getvalue() == "0.2 s: reading x.yaml\n2.2 s: opening the data\n"


def test_on_a_terminal_the_time_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Tty()
    with Interrupts() as interrupts, LiveDisplay(stream, interrupts) as display:
        display.doing("opening the data")
        until = time.monotonic() + 10
        while "0.3 s: opening the data" not in stream.getvalue() and time.monotonic() < until:
            time.sleep(0.02)
        display.note("a note stays")
    drawn = stream.getvalue()
    assert "0.0 s: opening the data" in drawn and "0.3 s: opening the data" in drawn
    assert "a note stays\n" in drawn


def test_requests_to_stop_count_from_the_plan_on(plan: Plan) -> None:
    with Interrupts() as interrupts:
        PlainLines(io.StringIO(), interrupts).planned(plan)
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.count == 1
