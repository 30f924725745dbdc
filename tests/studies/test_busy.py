"""What a study says of a machine that was busy."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from alray.runtime.probe import other_programs
from alray.runtime.probe.other_programs import Machine
from alray.studies.busy import busy_warnings, taken_from
from alray.studies.report import write_report

from .conftest import results, study_folder, trial


def test_the_processes_of_a_study_are_no_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child computes, and others are made to keep two processors busy."""
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        of_child = psutil.Process(child.pid)
        began_s = time.monotonic()

        def worked_s() -> float:
            own = (of_child.cpu_times(), psutil.Process().cpu_times())
            return sum(sum(times[:4]) for times in own) + 2.0 * (time.monotonic() - began_s)

        monkeypatch.setattr(other_programs, "processor_seconds", worked_s)
        machine = Machine()
        while sum(of_child.cpu_times()[:2]) < 0.3:
            time.sleep(0.05)
        assert machine.other_processors(last_s=0.1) == pytest.approx(2.0, abs=0.2)
    finally:
        child.kill()
        child.wait()


FORGETS = """
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as Ray's raylet: the system waits for its children
print(subprocess.Popen([sys.executable, "-c", "while True: pass"]).pid, flush=True)
sys.stdin.read()
"""


def test_processes_of_a_study_that_have_ended_are_no_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of stages, when the next trial has another number of them."""
    command = [sys.executable, "-c", FORGETS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        busy_one = psutil.Process(int(parent.stdout.readline()))
        seen_s = [0.0]

        def worked_s() -> float:
            if busy_one.is_running():
                seen_s.append(sum(busy_one.cpu_times()[:2]))
            return seen_s[-1] + sum(sum(psutil.Process(pid).cpu_times()[:4]) for pid in (parent.pid, os.getpid()))

        monkeypatch.setattr(other_programs, "processor_seconds", worked_s)
        machine = Machine()
        while sum(busy_one.cpu_times()[:2]) < 0.5:
            time.sleep(0.05)
        assert machine.other_processors(last_s=0.1) == pytest.approx(0.0, abs=0.2)
        busy_one.kill()
        while busy_one.is_running():
            time.sleep(0.02)
        assert machine.other_processors(last_s=0.1) == pytest.approx(0.0, abs=0.5)


@pytest.mark.parametrize(
    ("stages", "other", "at_once", "taken"),
    [(1, 0.9, 1, 0.0), (1, 3.5, 1, 0.5), (2, 3.0, 1, 1.0), (2, 1.0, 2, 1.0)],
)
def test_other_programs_may_have_what_a_trial_leaves_free(
    monkeypatch: pytest.MonkeyPatch, stages: int, other: float, at_once: int, taken: float
) -> None:
    monkeypatch.setattr(other_programs.os, "sched_getaffinity", lambda _: set(range(4)))
    record = trial(0, {"pipeline.stages": stages}, ran={"engine": "ray"})
    assert taken_from(record, other, at_once) == pytest.approx(taken)


def test_a_report_says_which_trials_ran_beside_other_programs(tmp_path: Path) -> None:
    trials = [trial(n, {"variant": "al"}, seed=n, taken_processors=taken) for n, taken in enumerate((0.2, 0.9, None))]
    (warning,) = busy_warnings(trials)
    assert warning.startswith("The machine was busy") and "0.9 processors from 1 of 3 trials (1)" in warning
    assert busy_warnings(trials[::2]) == []
    folder = study_folder(results(trials), tmp_path / "out")
    assert write_report(folder).summary.warnings == [warning]
    assert warning in (folder.path / "report.md").read_text(encoding="utf-8")
