"""Callbacks of `alray.run` and of a resume; `tests/runtime/runner/test_driver.py` has what they hear after failures."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import alray
from alray.core.errors import RequestError, UserCodeError


def say(*what: object) -> None:
    sys.stdout.write(" ".join(map(str, what)) + "\n")


class Everything:
    """Needs no base class: says what it hears on standard output."""

    def on_start(self, run: alray.Run) -> None:
        say("start", run.plan.partition, run.spec.name)

    def on_step(self, record: Any) -> None:
        say("step", record.step)

    def on_evaluation(self, record: Any) -> None:
        say("evaluation", record.step, record.validation)

    def on_checkpoint(self, record: Any) -> None:
        say("checkpoint", record.step)

    def on_end(self, run: alray.Run) -> None:
        say("end", run.summary.status)


_DRAWING = """
import math
import time
import torch
from torch import nn


class Drawing(nn.Module):
    def __init__(self, input_shape):
        super().__init__()
        self.linear = nn.Linear(math.prod(input_shape), 4)

    def forward(self, x):
        x = self.linear(x.flatten(1))
        if self.training:
            time.sleep(0.002)  # what others draw meanwhile would come between seeding and drawing
        return x * torch.rand_like(x)
"""


class Stops(alray.Callback):
    """Asks for a stop as soon as it can."""

    def on_step(self, record: Any) -> None:
        self.stop()


def test_callbacks_hear_what_is_recorded_and_may_print(
    tiny: dict[str, Any], ended: alray.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run = alray.run(tiny, inline=True, progress=False, callbacks=[Everything(), alray.Callback()])
    said = capsys.readouterr().out.splitlines()
    assert (said[0], said[-1]) == ("start (1, 2) tiny", "end finished")
    assert [line for line in said if line.startswith("step")] == [f"step {step}" for step in range(1, 19)]
    measured = run.records("evaluation")
    told = [f"evaluation {step} {score}" for step, score in zip(measured["step"], measured["validation"], strict=True)]
    assert [line for line in said if line.startswith("evaluation")] == told
    assert said.index("checkpoint 18") > said.index("step 18")
    assert run.summary.weights_sha256 == ended.summary.weights_sha256


def test_a_callback_stops_a_run_that_a_resume_continues_to_the_same_weights(tiny: dict[str, Any]) -> None:
    stops = Stops()
    run = alray.run(tiny, {"run.epochs": 2000}, inline=True, progress=False, callbacks=[stops])
    assert run.summary.status == "interrupted"
    steps = run.summary.steps
    again = run.resume(inline=True, progress=False, callbacks=[stops])
    assert again.summary.status == "interrupted" and 0 < steps < again.summary.steps < 18_000
    epochs = {"run.epochs": again.summary.steps // 9 + 1}
    again = again.resume(epochs, inline=True, progress=False)
    whole = alray.run(tiny, epochs, inline=True, progress=False)
    assert again.summary.weights_sha256 == whole.summary.weights_sha256


class Computes(alray.Callback):
    """Has torch compute in the process of the stages while they train: it evaluates, and trains another network."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec, self.evaluated, self.other = spec, 0, ""
        self.threads = ThreadPoolExecutor(1)

    def on_start(self, run: alray.Run) -> None:
        self.run = run

    def on_checkpoint(self, record: Any) -> None:
        self.run.trained().evaluate()
        self.evaluated += 1
        if not self.other:
            self.threads.submit(self.run.trained().evaluate).result()
            with pytest.raises(RequestError, match="another run computes in this process"):
                self.threads.submit(alray.run, self.spec, inline=True, progress=False).result()
            self.other = alray.run(self.spec, inline=True, progress=False).summary.weights_sha256


def test_what_a_callback_computes_changes_no_weight(tiny: dict[str, Any], ended: alray.Run) -> None:
    """Stages and callbacks of one process have the same generators of random numbers."""
    draws = {"block": "python:drawing.Drawing"}
    Path("drawing.py").write_text(_DRAWING, encoding="utf-8")
    model = {"components": [*tiny["model"]["components"], draws]}
    pipeline = {"stages": 2, "costs": [*tiny["pipeline"]["costs"], tiny["pipeline"]["costs"][0]]}
    often = {"epochs": 2, "evaluate_every": "1 steps", "checkpoint": {"every": "1 steps"}}
    spec = {**tiny, "model": model, "pipeline": pipeline, "run": often}
    computes = Computes(tiny)
    watched = alray.run(spec, inline=True, progress=False, callbacks=[computes])
    assert computes.evaluated > 15 and computes.other == ended.summary.weights_sha256
    assert watched.summary.weights_sha256 == alray.run(spec, inline=True, progress=False).summary.weights_sha256


@pytest.mark.parametrize("first", ["callback", "user"])
def test_a_user_who_asks_once_beside_a_callback_keeps_what_was_trained(tiny: dict[str, Any], first: str) -> None:
    """Both mean the same stop. Only after a line that Ctrl-C now stops at once, it does."""

    class Both(alray.Callback):
        def on_step(self, record: Any) -> None:
            for who in {"callback": ("callback", "user"), "user": ("user", "callback")}[first]:
                if record.step == 3 and who == "callback":
                    self.stop()
                elif record.step == 3:
                    os.kill(os.getpid(), signal.SIGINT)

    run = {"epochs": 2000, "evaluate_every": None, "checkpoint": {"every": "9999 steps"}}
    with pytest.raises(KeyboardInterrupt):
        alray.run({**tiny, "run": run}, inline=True, output="out", progress=False, callbacks=[Both()])
    assert alray.load_run("out").summary.steps >= 3


@pytest.mark.parametrize("stops_first", [False, True])
def test_the_interrupt_that_stops_at_once_ends_a_callback_that_hangs(tiny: dict[str, Any], stops_first: bool) -> None:
    """The second one; the first, where a callback has asked to stop before, and the driver has said so."""

    class Hangs(alray.Callback):
        def on_evaluation(self, record: Any) -> None:
            if stops_first:
                self.stop()
            else:
                self.hang(2)

        def on_checkpoint(self, record: Any) -> None:  # the only one, at the end
            self.hang(1)

        def hang(self, requests: int) -> None:
            for _ in range(requests):
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)

    run = {"epochs": 2000, "evaluate_every": "1 steps", "checkpoint": None}
    began_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt, match="continues"):
        alray.run({**tiny, "run": run}, inline=True, output="out", progress=False, callbacks=[Hangs()])
    assert time.monotonic() - began_s < 50
    assert alray.load_run("out").summary.status == "interrupted"


def test_callbacks_hear_a_run_that_is_done_again(ended: alray.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert alray.reproduce(ended, progress=False, callbacks=[Everything()]).same
    said = capsys.readouterr().out.splitlines()
    assert (said[0], said[-1]) == ("start (1, 2) tiny", "end finished") and "step 18" in said


@pytest.mark.parametrize(("method", "left"), [("on_start", None), ("on_evaluation", "failed"), ("on_end", "finished")])
def test_what_a_callback_raises_is_raised_with_its_name(
    tiny: dict[str, Any], ended: alray.Run, method: str, left: str | None
) -> None:
    def fail(argument: object) -> None:
        raise ValueError("not like this")

    callback = alray.Callback()
    setattr(callback, method, fail)
    with pytest.raises(UserCodeError, match=f"callback `Callback` raised ValueError in `{method}`") as caught:
        alray.run(tiny, inline=True, output="out", progress=False, callbacks=[callback])
    place, cause = caught.value.problems[0], caught.value.__cause__
    assert (place.file, place.line) == (__file__, fail.__code__.co_firstlineno + 1)
    assert isinstance(cause, ValueError)
    assert fail.__code__ in {frame.f_code for frame, _ in traceback.walk_tb(cause.__traceback__)}
    run = alray.load_run("out")
    if left is not None:
        assert run.summary.status == left
    again = run.resume(inline=True, progress=False)
    assert again.summary.weights_sha256 == ended.summary.weights_sha256
