"""Play a case: begin its command, let its faults happen, go on with it until it has finished, and judge all of that."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import psutil

from .faults import RUN_FOLDER, Case, Fault
from .room import Room
from .scenarios import EVALUATE_EVERY, SCENARIOS, STEPS, Scenario, write_spec

LEAVING_S = 10.0
"""So long after a command has ended what it began may still be there."""
MOST_COMMANDS = 6
_LOOKING_S = 0.02
_SIGNALS = {-1: "SIGHUP", -2: "SIGINT", -9: "SIGKILL", -15: "SIGTERM"}
_REFUSED, _INTERRUPTED = 2, 130

SAME, RESUMED, ERROR = "same bits", "same bits after resume", "one error"
WRONG = ("other bits", "hung", "traceback", "several errors", "died", "wrong exit code", "refused", "does not end")


@dataclass
class Command:
    """What a command came to."""

    words: list[str]
    seconds: float = 0.0
    code: int | None = None
    error: str = ""
    struck: list[str] = field(default_factory=list)
    fault: str | None = None
    """What of `WRONG` it did."""


@dataclass
class Played:
    """What a case came to. left: what was still there `LEAVING_S` after a command."""

    case: Case
    outcome: str = ""
    commands: list[Command] = field(default_factory=list)
    struck: list[Fault] = field(default_factory=list)
    left: dict[str, list[str]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "number": self.case.number,
            "scenario": self.case.scenario.name,
            "patient": self.case.patient,
            "outcome": self.outcome,
            "left": self.left,
            "faults": [asdict(fault) | {"struck": fault in self.struck} for fault in self.case.faults],
            "commands": [asdict(command) for command in self.commands],
        }


def weights_of(scenario: Scenario, folder: Path) -> list[str] | None:
    """The hashes of the weights in a run folder, or of all trials in a study folder; None if it has not finished."""
    files = [folder / f"trials/{n:04d}/summary.json" for n in range(scenario.trials)]
    found = []
    for file in files if scenario.study else [folder / "summary.json"]:
        if not file.is_file():
            return None
        summary = json.loads(file.read_text(encoding="utf-8"))
        if summary["status"] != "finished":
            return None
        found.append(summary["weights_sha256"])
    return found


def weights_said(output: Path) -> list[str] | None:
    """The hash in the summary that a run printed: its folder may have been removed when all was written."""
    out = output.with_suffix(".out").read_text(encoding="utf-8")
    sha256 = json.loads(out).get("weights_sha256") if out.startswith("{") else None
    return None if sha256 is None else [sha256]


class Undisturbed:
    """What scenarios come to when nothing happens to them. Each is run when it is first asked for."""

    def __init__(self, folder: Path, limit_s: float) -> None:
        """limit_s: how long a run may take."""
        self._folder, self._limit_s = folder, limit_s
        self._locks = {name: Lock() for name in SCENARIOS}
        self._weights: dict[str, list[str]] = {}

    def weights(self, name: str) -> list[str]:
        """The hashes of its weights. Raises RuntimeError if it does not finish."""
        with self._locks[name]:
            if name not in self._weights:
                self._weights[name] = self._run(
                    SCENARIOS[name], self._folder / f"undisturbed-{list(SCENARIOS).index(name)}"
                )
            return self._weights[name]

    def _run(self, scenario: Scenario, folder: Path) -> list[str]:
        with Room(folder) as room:
            write_spec(folder)
            outer, _ = room.alray(*scenario.first(), output=folder / "command")
            code = outer.wait(self._limit_s)
            found = weights_of(scenario, room.disk / RUN_FOLDER)
        if code or found is None:
            raise RuntimeError(f"{scenario.name} failed undisturbed: {(folder / 'command.err').read_text()}")
        shutil.rmtree(folder)
        return found


def play(case: Case, undisturbed: Undisturbed, folder: Path, limit_s: float) -> Played:
    """Play a case in a new folder, which is deleted unless something was wrong.

    limit_s: a command that takes longer is judged to hang.
    """
    played, expected = Played(case), undisturbed.weights(case.scenario.expected)
    with Room(folder) as room:
        write_spec(folder)
        _Player(case, expected, room, played, limit_s).play()
        if (played.outcome in WRONG or played.left) and (room.disk / RUN_FOLDER).exists():
            shutil.copytree(room.disk / RUN_FOLDER, folder / "kept")
    if played.outcome not in WRONG and not played.left:
        shutil.rmtree(folder)
    return played


@dataclass
class _Player:
    case: Case
    expected: list[str]
    room: Room
    played: Played
    limit_s: float

    def play(self) -> None:
        scenario, played = self.case.scenario, self.played
        waiting = list(self.case.faults)
        words = scenario.first()
        while len(played.commands) < MOST_COMMANDS:
            command = self._command(words, waiting)
            played.commands.append(command)
            self._look_at_what_is_left(wait=self.case.patient)
            if command.fault:
                played.outcome = command.fault
                return
            if command.code == 0:
                found = weights_of(scenario, self.run_folder) or weights_said(self._output(len(played.commands) - 1))
                if found != self.expected:
                    played.outcome = "other bits"
                elif any(each.error for each in played.commands) or len(played.commands) > 1:
                    played.outcome = RESUMED
                else:
                    played.outcome = SAME
                self._look_at_what_is_left(wait=True)
                return
            words = scenario.again()
            if not self._can_go_on():
                shutil.rmtree(self.run_folder, ignore_errors=True)
                words = scenario.first()
            elif command.code == _REFUSED and command.words[0] == "resume":
                played.outcome = "refused"
                return
        played.outcome = "does not end"

    def _can_go_on(self) -> bool:
        """Whether the run had started when its command ended; otherwise there is nothing to resume."""
        return (self.run_folder / ("study.yaml" if self.case.scenario.study else "records.jsonl")).exists()

    @property
    def run_folder(self) -> Path:
        return self.room.disk / RUN_FOLDER

    def _output(self, number: int) -> Path:
        """Where the output of a command is, without the ending."""
        return self.room.folder / f"command-{number}"

    def _command(self, words: list[str], waiting: list[Fault]) -> Command:
        """Run one command to its end, with the faults that are waiting. Those that happened are taken away."""
        command = Command(words)
        output = self._output(len(self.played.commands))
        began_s = time.monotonic()
        outer, driver = self.room.alray(*words, output=output)
        ending: list[tuple[float, Callable[[], None]]] = []
        struck: list[Fault] = []
        moments = _Moments(self.case.scenario, self.run_folder, began_s)
        while outer.poll() is None and time.monotonic() - began_s < self.limit_s:
            now = time.monotonic()
            for entry in [entry for entry in ending if entry[0] <= now]:
                entry[1]()
                ending.remove(entry)
            if driver is not None and waiting and moments.has_come(waiting[0]):
                over = self._struck(waiting[0], driver)
                if over is not None:
                    fault = waiting.pop(0)
                    struck.append(fault)
                    command.struck.append(f"{fault.row} after {now - began_s:.1f} s, mini-batch {moments.step}")
                    ending.append((now + (fault.lasts_s or self.limit_s), over))
            time.sleep(_LOOKING_S)
        hung = outer.poll() is None
        if hung and driver is not None:
            driver.kill()
        command.code = outer.wait()
        for _, over in ending:
            over()
        command.seconds = round(time.monotonic() - began_s, 1)
        self.played.struck += struck
        _judge(command, output, struck, hung=hung)
        return command

    def _struck(self, fault: Fault, driver: psutil.Process) -> Callable[[], None] | None:
        try:
            return fault.strike(self.room, driver)
        except psutil.NoSuchProcess:
            return None

    def _look_at_what_is_left(self, *, wait: bool) -> None:
        """Wait until nothing is left, and keep what is left too long."""
        until_s = time.monotonic() + LEAVING_S
        while wait:
            left = {kind: names for kind, names in self.room.left().items() if names}
            if not left:
                return
            if time.monotonic() > until_s:
                for kind, names in left.items():
                    self.played.left.setdefault(kind, []).extend(names)
                self.room.clear()
                return
            time.sleep(0.2)


class _Moments:
    """Says when the moment of a fault has come, from what the run has written."""

    def __init__(self, scenario: Scenario, folder: Path, began_s: float) -> None:
        self._scenario, self._folder, self._began_s = scenario, folder, began_s
        self._first = set(self._checkpoints())
        self._came: dict[str, float] = {}
        self.step = 0

    def _runs(self) -> list[Path]:
        return sorted(self._folder.glob("trials/*")) if self._scenario.study else [self._folder]

    def _checkpoints(self) -> Iterator[Path]:
        for run in self._runs():
            with suppress(FileNotFoundError):  # a folder that is removed while it is listed
                yield from run.glob("checkpoints/step-*")

    def _steps(self) -> int:
        """Mini-batches that the records show; of a study, of all trials."""
        total = 0
        for run in self._runs():
            try:
                text = (run / "records.jsonl").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            lines = [line for line in text.splitlines() if '"kind":"steps"' in line and line.endswith("}")]
            total += json.loads(lines[-1])["steps"][-1] if lines else 0
        return total

    def has_come(self, fault: Fault) -> bool:
        """Whether the fault is to happen now."""
        now = time.monotonic()
        self.step = self._steps()
        at = {
            "start": True,
            "middle": self.step >= fault.part * self._scenario.total_steps,
            "checkpoint": any(each not in self._first for each in self._checkpoints()),
            "evaluation": self.step >= EVALUATE_EVERY * (1 + int(fault.part * STEPS / EVALUATE_EVERY)),
            "end": self.step >= self._scenario.total_steps,
        }
        if not at[fault.moment]:
            return False
        came_s = self._came.setdefault(fault.moment, self._began_s if fault.moment == "start" else now)
        return now >= came_s + fault.delay_s


def _judge(command: Command, output: Path, struck: list[Fault], *, hung: bool) -> None:
    """Say what was wrong with the end of a command, if anything was."""
    out, err = (output.with_suffix(suffix).read_text(errors="replace") for suffix in (".out", ".err"))
    errors = [line for line in err.splitlines() if line.startswith("error:")]
    if out.startswith("{"):
        errors = errors or [problem["message"] for problem in json.loads(out).get("errors", [])]
    command.error = "\n".join(errors)
    kinds = {fault.kind for fault in struck}
    if hung:
        command.fault = "hung"
    elif "Traceback (most recent call last)" in err:
        command.fault, command.error = "traceback", err[-1500:]
    elif len(errors) > 1:
        command.fault = "several errors"
    elif command.code is not None and command.code < 0:
        sent = _SIGNALS.get(command.code)
        by_us = any(fault.target == "driver" and fault.kind.startswith(sent or "nothing") for fault in struck)
        command.fault = None if by_us else "died"
        command.error = command.error or err[-1500:]
    elif command.code == _INTERRUPTED:
        command.fault = None if kinds & {"SIGINT", "SIGINT twice", "SIGTERM", "SIGHUP"} else "wrong exit code"
    elif command.code and not errors:
        command.fault, command.error = "wrong exit code", err[-1500:]
