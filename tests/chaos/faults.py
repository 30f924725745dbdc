"""What goes wrong: the kinds of faults, the moments at which they come, and how chance chooses them."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import psutil

from .room import Room, title_of
from .scenarios import LOADER, RUNS, STUDIES, Scenario

Moment = Literal["start", "middle", "checkpoint", "evaluation", "end"]
ORDER: tuple[Moment, ...] = ("start", "middle", "checkpoint", "evaluation", "end")
RUN_FOLDER, FILLER = "run", "filler"

_TITLES = {
    "stage": ("ray::Stage", "ray::RayTrainWorker"),
    "trial": ("ray::ImplicitFunc",),
    "raylet": ("raylet",),
    "GCS": ("gcs_server",),
    "agent": ("ray::DashboardAgent", "ray::RuntimeEnvAgent", "dashboard/agent.py", "runtime_env/agent/main.py"),
    "reaper": ("runtime/local_ray/reaper.py",),
    "loader worker": ("from multiprocessing.spawn import spawn_main",),
}
"""How the processes that a fault may hit call themselves, as `title_of` says it."""
_ON_RAY = ("stage", "raylet", "GCS", "agent", "reaper")
_DRIVERS = ("driver", "trial")
_KILL, _STOP = "SIGKILL", "SIGSTOP"


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    kind: what the table counts. target: whose process, if it is one. moment: when it comes; `part`: at which part of
    all mini-batches; `delay_s`: so long after the moment. lasts_s: after so long it is over, as when a stopped process
    goes on; None: it stays until the command has ended. chance: picks one of several processes.
    """

    kind: str
    target: str | None
    moment: Moment
    part: float
    delay_s: float
    lasts_s: float | None
    chance: float

    @property
    def row(self) -> str:
        """Its row in the table."""
        return f"{self.kind} {self.target}" if self.target else self.kind

    def victim(self, room: Room, driver: psutil.Process) -> psutil.Process | None:
        """The process that it hits; None if there is none of that kind now."""
        if self.target == "driver":
            return driver
        titles = _TITLES[self.target or ""]
        found = [process for process in room.processes() if title_of(process).startswith(titles)]
        return found[int(self.chance * len(found))] if found else None

    def strike(self, room: Room, driver: psutil.Process) -> Callable[[], None] | None:
        """Let it happen. Returns what ends it; None if it cannot happen now."""
        if self.kind == "network loss":
            room.network("down")
            return lambda: room.network("up")
        if self.kind == "full disk":
            _fill(room)
            return lambda: (room.disk / FILLER).unlink(missing_ok=True)
        if self.kind == "removed folder":
            if not (room.disk / RUN_FOLDER).exists():
                return None
            shutil.rmtree(room.disk / RUN_FOLDER, ignore_errors=True)
            return lambda: None
        if self.kind == "SIGINT twice":
            driver.send_signal(signal.SIGINT)
            with suppress(psutil.TimeoutExpired):
                driver.wait(self.chance)
            with suppress(psutil.NoSuchProcess):
                driver.send_signal(signal.SIGINT)
            return lambda: None
        victim = self.victim(room, driver)
        if victim is None:
            return None
        victim.send_signal(signal.Signals[self.kind])
        return (lambda: _go_on(victim)) if self.kind == _STOP else (lambda: None)


def _go_on(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGCONT)
        begun_by = process.parent()
        if begun_by is not None and begun_by.name() == "nsenter":  # which stops itself with what it has started
            begun_by.send_signal(signal.SIGCONT)


def _fill(room: Room) -> None:
    """Fill the disk to its last byte, though what lies there may still be written over."""
    with suppress(OSError), (room.disk / FILLER).open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass


@dataclass(frozen=True)
class Case:
    """What is run, and what goes wrong there. patient: goes on only when all that the command began has ended."""

    number: int
    scenario: Scenario
    faults: tuple[Fault, ...]
    patient: bool


def drawn(seed: int, number: int) -> Case:
    """The case of this number. The same seed and number give the same case."""
    chance = random.Random(f"{seed}-{number}")
    scenario = chance.choice(STUDIES) if chance.random() < 0.08 else chance.choice(RUNS)
    faults = [_fault(scenario, chance) for _ in range(chance.choices([0, 1, 2], [1, 24, 6])[0])]
    return Case(
        number, scenario, tuple(sorted(faults, key=lambda each: ORDER.index(each.moment))), chance.random() < 0.5
    )


def _fault(scenario: Scenario, chance: random.Random) -> Fault:
    signals = ("SIGINT", "SIGINT twice", "SIGTERM", "SIGHUP")
    kinds: list[tuple[str, str | None]] = [(_KILL, "driver"), (_STOP, "driver")]
    targets = list(_ON_RAY) if not scenario.inline else []
    targets += ["trial"] if scenario.study else []
    targets += ["loader worker"] if LOADER in scenario.overrides else []
    kinds += [(kind, target) for kind in (_KILL, _STOP) for target in targets]
    others: list[tuple[str, str | None]] = [*((kind, "driver") for kind in signals), *_OF_DISK]
    others += [] if scenario.inline else [("network loss", None)]
    kind, target = chance.choice(chance.choice([kinds, others]))
    moment = chance.choice(ORDER)
    if target == "loader worker" and moment in ("evaluation", "end"):
        moment = "checkpoint"  # loaders are ahead of the training, and end before it
    delays_s = {"start": 4.0 if scenario.inline else 12.0, "end": 2.0}
    lasts_s = chance.choice([chance.uniform(0.2, 6.0), chance.uniform(6.0, 20.0), None])
    return Fault(
        "SIGINT twice" if kind == "SIGINT twice" else kind,
        target,
        moment,
        part=chance.uniform(0.05, 0.6 if target == "loader worker" else 0.9),
        delay_s=chance.uniform(0.0, delays_s.get(moment, 0.3)),
        # Nobody waits in vain for a driver that is stopped for good but its user. A trial of a study is one, and so is
        # the process of an inline run, which has no deadline for its loader.
        lasts_s=10.0 if lasts_s is None and kind == _STOP and (target in _DRIVERS or scenario.inline) else lasts_s,
        chance=chance.random(),
    )


_OF_DISK: tuple[tuple[str, None], ...] = (("full disk", None), ("removed folder", None))
