"""Ctrl-C and SIGTERM: what is counted, and what a run makes of it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from alray.api.console.interrupts import Interrupts

pytestmark = [pytest.mark.own_ray, pytest.mark.timeout(360)]

STARTING_S = 180
"""Seconds that a Ray may take to its first mini-batch beside the other tests: 90 were too few on a slow machine."""

INLINE: list[str] = ["--inline"]
ON_RAY: list[str] = []
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


def start(command: list[str], *arguments: str | Path, engine: list[str] = INLINE) -> subprocess.Popen[str]:
    """`alray run` on its way, past its first mini-batch."""
    process = subprocess.Popen(
        [*command, "run", *map(str, arguments), *engine, "--output", "out"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_a_step(process)
    return process


def processes_of(process: subprocess.Popen[Any]) -> list[psutil.Process]:
    """What this process has started, and what those have."""
    return psutil.Process(process.pid).children(recursive=True)


def has_started(process: subprocess.Popen[Any], name: str) -> bool:
    """Whether this process has a child of this name."""
    for child in processes_of(process):
        with suppress(psutil.NoSuchProcess):  # it ended since it was listed
            if child.name() == name:
                return True
    return False


def wait_for_a_step(process: subprocess.Popen[Any] | None = None, terminal: int | None = None) -> None:
    """
    Args:
        process: what runs, unless it is this process.
        terminal: its other end, which is read so that the process can go on writing.
    """
    until_s = time.monotonic() + STARTING_S
    records = Path("out/records.jsonl")
    while not records.exists() or '"kind":"steps"' not in records.read_text():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < until_s
        if terminal is not None and select.select([terminal], [], [], 0.0)[0]:
            os.read(terminal, 65536)
        time.sleep(0.02)


def end(process: subprocess.Popen[str]) -> Ended:
    try:
        out, err = process.communicate(timeout=180)
    finally:
        process.kill()
    return Ended(process.returncode, out, err)


@pytest.mark.parametrize(
    ("number", "engine"),
    [
        (signal.SIGTERM, ON_RAY),  # Ray has its own handler for it, which aborts
        pytest.param(signal.SIGTERM, INLINE, marks=pytest.mark.full),
        pytest.param(signal.SIGINT, INLINE, marks=pytest.mark.full),
    ],
)
def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(
    alray: Callable[..., Any],
    spec: Path,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    engine: list[str],
) -> None:
    Path("mine.py").write_text(SLOW)
    spec.write_text(spec.read_text().replace("{block: vgg, channels: [2]}", "{block: 'python:mine.Slow'}", 1))
    long = "run.steps=40"
    monkeypatch.setenv("SLOW_S", "0.25")
    process = start(command, spec, long, "run.evaluate_every=null", "run.checkpoint=null", "--json", engine=engine)
    monkeypatch.delenv("SLOW_S")
    started = processes_of(process)
    process.send_signal(number)
    said = end(process)
    assert said.code == 130, said.err
    assert psutil.wait_procs(started, timeout=20)[1] == []
    assert json.loads(said.out)["status"] == "interrupted"
    (manifest,) = Path("out/checkpoints").glob("*/manifest.json")
    assert 0 < json.loads(manifest.read_text())["step"] < 40
    assert "alray resume out" in said.err
    resumed = alray("resume", "out", "--inline", "--json")
    assert (resumed.code, resumed.json["status"], resumed.json["steps"]) == (0, "finished", 40)
    unbroken = alray("run", spec, long, "run.evaluate_every=null", "--inline", "--json").json
    assert resumed.json["weights_sha256"] == unbroken["weights_sha256"]


# In three whole runs of the tests on a busy machine the command with --inline did not end within 60 s; alone it always
# does. Signals are neither blocked nor ignored then. The cause is not known.
@pytest.mark.full
@pytest.mark.parametrize("engine", [INLINE, pytest.param(ON_RAY, id="ray")])
def test_a_closed_terminal_ends_a_run_with_a_checkpoint(spec: Path, command: list[str], engine: list[str]) -> None:
    """A shell whose terminal is closed sends SIGHUP to the whole group, and nothing can be written any more."""
    arguments = ["run", str(spec), "run.steps=100000", "run.evaluate_every=null", "run.checkpoint=null"]
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [*command, *arguments, *engine, "--output", "out"],
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


@pytest.mark.full  # tests/runtime/local_ray/test_sigterm.py has the signal, the test above a run that is ended by it
@pytest.mark.parametrize("after_s", [tenths / 10 for tenths in range(0, 15, 5)])
def test_sigterm_while_ray_starts(spec: Path, command: list[str], after_s: float) -> None:
    """after_s: seconds after the first sight of the raylet."""
    process = subprocess.Popen([*command, "run", str(spec), "--output", "out"], stderr=subprocess.PIPE, text=True)
    until_s = time.monotonic() + STARTING_S
    while not has_started(process, "raylet"):
        assert process.poll() is None and time.monotonic() < until_s
        time.sleep(0.01)
    time.sleep(after_s)
    started = processes_of(process)
    process.send_signal(signal.SIGTERM)
    said = end(process)
    assert (said.code, said.err.splitlines()[-1]) == (130, "interrupted")
    assert psutil.wait_procs(started, timeout=20)[1] == []


@pytest.mark.full
def test_a_reader_that_is_gone_ends_the_output_alone(spec: Path, command: list[str]) -> None:
    """As after `alray run ... 2>&1 | tee log` and Ctrl-C, which ends tee too."""
    ours, theirs = os.pipe()
    arguments = ["run", str(spec), "run.steps=100000", "run.evaluate_every=null", "run.checkpoint=null", "--inline"]
    process = subprocess.Popen([*command, *arguments, "--output", "out"], stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        wait_for_a_step(process)
        os.close(ours)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
    assert json.loads(Path("out/summary.json").read_text())["status"] == "interrupted"
    assert len(list(Path("out/checkpoints").glob("*/manifest.json"))) == 1
    for arguments in (["list", "."], ["list", ".", "--json"], ["--help"]):
        ours, theirs = os.pipe()
        os.close(ours)
        listed = subprocess.run([*command, *arguments], stdout=theirs, stderr=subprocess.PIPE, text=True, check=False)
        os.close(theirs)
        assert (listed.returncode, listed.stderr) == (0, ""), arguments


_LOADER = "from multiprocessing.spawn import spawn_main"


@pytest.mark.full  # tests/engine/test_closed.py and tests/chaos/test_chaos.py have one whose GCS dies
@pytest.mark.parametrize(
    ("victim", "number", "said_of"),
    [
        ("raylet", signal.SIGKILL, "a process of Ray on this machine ended: raylet"),
        ("raylet", signal.SIGSTOP, None),
        ("gcs_server", signal.SIGSTOP, None),
        (_LOADER, signal.SIGSTOP, "stage 0 has waited "),
    ],
    ids=["raylet killed", "raylet stopped", "GCS stopped", "loader worker stopped"],
)
def test_a_run_whose_process_ends_or_stops_goes_on(
    alray: Callable[..., Any],
    spec: Path,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    victim: str,
    number: signal.Signals,
    said_of: str | None,
) -> None:
    """Without an answer for so long, the attempt ends, and what had stopped with it; nothing is left behind.

    Stages that train need neither the raylet nor the GCS: the run notices one that is stopped at its end alone.
    """
    Path("mine.py").write_text(SLOW)
    spec.write_text(spec.read_text().replace("{block: vgg, channels: [2]}", "{block: 'python:mine.Slow'}", 1))
    monkeypatch.setenv("SLOW_S", "0.25")
    long = ("run.steps=120", "run.evaluate_every=null", "run.deadline_s=6", "data.workers=1")
    process = start(command, spec, *long, "run.checkpoint={every: 10 steps}", "--json", engine=ON_RAY)
    monkeypatch.delenv("SLOW_S")
    started = processes_of(process)
    found = next(each for each in started if each.name() == victim or victim in " ".join(each.cmdline()))
    found.send_signal(number)
    said = end(process)
    assert said.code == 0, said.err
    summary = json.loads(said.out)
    said_at_failures = [failure["message"] for failure in summary["failures"]]
    if said_of is None:
        assert said_at_failures == []
    else:
        assert len(said_at_failures) == 1 and said_at_failures[0].startswith(said_of)
    assert psutil.wait_procs(started, timeout=20)[1] == []
    unbroken = alray("run", spec, *long, "--inline", "--json").json
    assert summary["weights_sha256"] == unbroken["weights_sha256"]


@pytest.mark.full
def test_a_study_whose_ray_dies_ends_in_one_error_and_goes_on_at_a_resume(spec: Path, command: list[str]) -> None:
    Path("study.yaml").write_text(
        f"study: points\nbase: {spec.name}\nset: {{run.steps: 200, run.evaluate_every: null, seed: 1}}\n"
        "axes: {optimizer.lr: [0.01, 0.02]}\n"
    )
    words = [*command, "study", "study.yaml", "--output", "out", "--json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until_s = time.monotonic() + STARTING_S
    while not list(Path("out/trials").glob("*/records.jsonl")):
        assert process.poll() is None and time.monotonic() < until_s
        time.sleep(0.1)
    (victim,) = [each for each in processes_of(process) if each.name() == "gcs_server"]
    started = processes_of(process)
    victim.kill()
    said = end(process)
    assert said.code == 1, said.err
    (error,) = json.loads(said.out)["errors"]
    assert error["message"] == "a process of Ray on this machine ended: gcs_server"
    assert psutil.wait_procs(started, timeout=20)[1] == []
    resumed = subprocess.run([*command, "study", "--resume", "out", "--json"], capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["statuses"] == {"finished": 2}


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


@pytest.mark.full
def test_the_second_interrupt_does_not_wait_for_a_block_that_hangs(spec: Path, command: list[str]) -> None:
    Path("mine.py").write_text(STUCK)
    spec.write_text(spec.read_text().replace("{block: vgg, channels: [2]}", "{block: 'python:mine.build'}", 1))
    process = start(command, spec)
    for _ in range(2):
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
    said = end(process)
    assert said.code == 130, said.err
    assert "after this mini-batch and its checkpoint" in said.err
    assert said.out.startswith("interrupted ")


AT_THE_END = """\
import atexit
import time

import torch

atexit.register(time.sleep, 600)


def build(input):
    return torch.nn.Conv2d(1, 1, 1)
"""


@pytest.mark.parametrize("after_s", [0.05, 20.0], ids=["in the run", "at the end"])
def test_the_second_interrupt_ends_what_hangs_at_the_end(spec: Path, command: list[str], after_s: float) -> None:
    """after_s: seconds from the first request to the second, at most until the command has shown its summary."""
    Path("mine.py").write_text(AT_THE_END)
    spec.write_text(spec.read_text().replace("{block: vgg, channels: [2]}", "{block: 'python:mine.build'}", 1))
    process = start(command, spec, "run.steps=100000")
    process.send_signal(signal.SIGINT)
    until_s = time.monotonic() + after_s
    while time.monotonic() < until_s and not Path("out/report.html").exists():
        time.sleep(0.02)
    time.sleep(0.05 if after_s < 1 else 2.0)
    process.send_signal(signal.SIGINT)
    said = end(process)
    assert said.code == 130 and "Traceback" not in said.err, said.err


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
