"""Ctrl-C and SIGTERM: what is counted, and what a run makes of it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from alray.cli.interrupts import Interrupts

LONG = ["--inline", "--run-dir", "out"]
STUCK = """\
import time

import torch


class Stuck(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(1, 1, 1)
        self.calls = 0

    def forward(self, s, mask=None):
        self.calls += s.device.type == "cpu"
        if self.calls == 6:
            time.sleep(600)
        return self.layer(s)


def build(input, **fields):
    return Stuck()
"""


SLOW = """\
import os
import time

import torch


class Slow(torch.nn.Conv2d):
    def __init__(self, input):
        super().__init__(1, 1, 1)

    def forward(self, s, mask=None):
        time.sleep(float(os.environ.get("SLOW_S", "0")))
        return super().forward(s)
"""


class Ended(NamedTuple):
    """What a process came to."""

    code: int
    out: str
    err: str


def start(command: list[str], *arguments: str | Path) -> subprocess.Popen[str]:
    """`alray run` on its way, past its first mini-batch."""
    process = subprocess.Popen(
        [*command, "run", *map(str, arguments), *LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for_a_step(process)
    return process


def wait_for_a_step(process: subprocess.Popen[Any], terminal: int | None = None) -> None:
    """terminal: its other end, which is read so that the process can go on writing."""
    until_s = time.monotonic() + 60
    records = Path("out/records.jsonl")
    while not records.exists() or '"kind":"steps"' not in records.read_text():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until_s
        if terminal is not None and select.select([terminal], [], [], 0.0)[0]:
            os.read(terminal, 65536)
        time.sleep(0.02)


def end(process: subprocess.Popen[str]) -> Ended:
    try:
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    return Ended(process.returncode, out, err)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(
    alray: Callable[..., Any],
    spec: Path,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    Path("mine.py").write_text(SLOW)
    spec.write_text(spec.read_text().replace("{block: vgg, channels: [2]}", "{block: 'python:mine.Slow'}", 1))
    long = "run.steps=200"
    monkeypatch.setenv("SLOW_S", "0.05")
    process = start(command, spec, long, "run.evaluate_every=null", "run.checkpoint=null", "--json")
    monkeypatch.delenv("SLOW_S")
    process.send_signal(number)
    said = end(process)
    assert said.code == 130, said.err
    assert json.loads(said.out)["status"] == "interrupted"
    (manifest,) = Path("out/checkpoints").glob("*/manifest.json")
    assert 0 < json.loads(manifest.read_text())["step"] < 200
    assert "alray resume out" in said.err
    resumed = alray("resume", "out", "--inline", "--json")
    assert (resumed.code, resumed.json["status"], resumed.json["steps"]) == (0, "finished", 200)
    unbroken = alray("run", spec, long, "run.evaluate_every=null", "--inline", "--json").json
    assert resumed.json["weights_sha256"] == unbroken["weights_sha256"]


@pytest.mark.parametrize("engine", [["--inline"], pytest.param([], id="ray", marks=pytest.mark.full)])
def test_a_closed_terminal_ends_a_run_with_a_checkpoint(spec: Path, command: list[str], engine: list[str]) -> None:
    """A shell whose terminal is closed sends SIGHUP to the whole group, and nothing can be written any more."""
    arguments = ["run", str(spec), "run.steps=100000", "run.evaluate_every=null", "run.checkpoint=null"]
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [*command, *arguments, *engine, "--run-dir", "out"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    try:
        os.close(theirs)
        wait_for_a_step(process, ours)
        os.close(ours)
        time.sleep(0.5)  # the display writes before the signal comes
        os.killpg(process.pid, signal.SIGHUP)
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
    assert json.loads(Path("out/summary.json").read_text())["status"] == "interrupted"
    assert len(list(Path("out/checkpoints").glob("*/manifest.json"))) == 1


def test_a_run_under_nohup_goes_on() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            interrupts.count_from_now()
            os.kill(os.getpid(), signal.SIGHUP)
            interrupts.hold()
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.count == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_second_interrupt_does_not_wait_for_a_block_that_hangs(spec: Path, command: list[str]) -> None:
    Path("mine.py").write_text(STUCK)
    spec.write_text(spec.read_text().replace("{block: vgg, channels: [2]}", "{block: 'python:mine.build'}", 1))
    process = start(command, spec)
    for _ in range(2):
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
    said = end(process)
    assert said.code == 130, said.err
    assert "stopping after this mini-batch" in said.err
    assert said.out.startswith("interrupted ")


def test_requests_are_counted_and_the_third_waits_for_nobody() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        interrupts.count_from_now()
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.count == 1
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.count == 2
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_before_there_is_a_run_a_request_ends_the_command() -> None:
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    assert interrupts.count == 0


def test_a_handler_that_a_library_put_in_between_is_replaced() -> None:
    with Interrupts() as interrupts:
        interrupts.count_from_now()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        interrupts.hold()
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.count == 1
