"""What a trial of a study costs beside its training: processor seconds, and trials a minute.

    python -m benchmarks.trials

In each repeat a fresh Python imports what a trial needs. A process runs trials of two lengths in turns: the straight
line through both gives a trial of no mini-batches. A study runs trials of three seconds on two processors, and another
one trials of two stages.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

import psutil

from benchmarks.runs import settings, write_results
from benchmarks.start import processor_s

STUDY = Path(__file__).with_name("trials.yaml")
TRIAL_S = 3.0
_SHORT, _LONG = 50, 450  # mini-batches
_PAIRS = 5
_SLOTS = 2
_TRIALS = 30
_OF_TWO_STAGES = 4
_LOOKING_S = 0.5


def imports() -> dict[str, float]:
    """Processor seconds of a Python that imports what a trial needs, and of one that imports torch."""
    return {
        "import_s": processor_s("-c", "from alray.studies.trial import prepare_process; prepare_process()"),
        "torch_s": processor_s("-c", "import torch"),
    }


def warm_trials(folder: Path) -> dict[str, float]:
    """Processor seconds of a trial without mini-batches, and of a mini-batch, in a process that is used again."""
    from alray.config.study.load import load_study
    from alray.studies.folder import StudyFolder
    from alray.studies.trial import TrialOrder, prepare_process, run_trial

    prepare_process()
    loaded = {}
    alone: dict[str, Any] = {"one_process": True, "keeps_checkpoints": False, "target": None}
    alone |= {"allow_code": False}
    for steps in (_SHORT, _LONG):
        study = load_study(STUDY, [f"set.run.steps={steps}", f"repeats={_PAIRS + 1}"])
        made = StudyFolder.make(study, folder / str(steps))
        loaded[steps] = [TrialOrder(trial, made, study.study.base, **alone) for trial in study.trials]
    used: dict[int, list[float]] = {_SHORT: [], _LONG: []}
    for pair in range(_PAIRS + 1):
        for steps, orders in loaded.items():
            began = _own_s()
            record = run_trial(orders[pair])
            assert record.status == "finished", record.reason
            used[steps].append(_own_s() - began)
    short, long = (median(each[1:]) for each in used.values())
    per_step = (long - short) / (_LONG - _SHORT)
    return {"first_s": used[_SHORT][0], "trial_s": short - _SHORT * per_step, "mini_batch_s": per_step}


def _own_s() -> float:
    """Processor seconds of this process and of the children that it waited for."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, whose))


class Processors:
    """Counts the processor seconds of all processes below this one. Ray does not count those of its ended workers, so
    a thread looks at every process again and again."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, float], float] = {}
        self._ended = Event()
        self._looking = Thread(target=self._look_on, daemon=True)

    def _look_on(self) -> None:
        while not self._ended.wait(_LOOKING_S):
            self.look()

    def look(self) -> float:
        """The sum until now, of processes that have ended too."""
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                used = process.cpu_times()
                self._seen[process.pid, process.create_time()] = used.user + used.system
        return sum(self._seen.copy().values())

    def __enter__(self) -> Processors:
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._looking.join()


def study(folder: Path, *overrides: str, look: Callable[[], float] = lambda: 0.0) -> dict[str, list[float]]:
    """Run a study on Ray; when each trial ended, the processor seconds of all processes by then, and the step times.

    look: gives the processor seconds of the processes below this one.
    """
    from alray.studies.study import StudyOptions, StudyProgress, Watcher, run_study

    ends: list[float] = []
    used: list[float] = []
    step_times: list[float] = []

    def ended(progress: StudyProgress) -> None:
        summary = progress.record.summary
        assert summary is not None and summary.step_time_s is not None, progress.record.reason
        ends.append(time.monotonic())
        used.append(look() + _own_s() - began_s)
        step_times.append(summary.step_time_s)

    began, began_s = time.monotonic(), _own_s()
    run_study(STUDY, list(overrides), StudyOptions(study_dir=folder), Watcher(lambda line: None, ended))
    return {"ends_s": [end - began for end in ends], "processor_s": used, "step_times_s": step_times}


def a_minute(ends_s: Sequence[float]) -> float:
    """Trials that end in a minute, once every slot has had its first."""
    return 60.0 * (len(ends_s) - _SLOTS) / (ends_s[-1] - ends_s[_SLOTS - 1])


def measured() -> dict[str, Any]:
    """One repeat, in this process."""
    found: dict[str, Any] = imports()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        found["warm"] = warm_trials(place)
        # As long as a mini-batch takes where as many trials run at once.
        tried = study(place / "tried", f"set.run.steps={round(TRIAL_S / found['warm']['mini_batch_s'])}", "repeats=4")
        steps = round(TRIAL_S / median(tried["step_times_s"]))
        ran = study(place / "rate", f"set.run.steps={steps}", f"repeats={_TRIALS}")
        found["rate"] = {"steps": steps, "ends_s": ran["ends_s"], "a_minute": a_minute(ran["ends_s"])}
        of_two = ("set.pipeline={stages: 2}", f"set.run.steps={_SHORT}", f"repeats={_OF_TWO_STAGES}")
        with Processors() as processors:
            two = study(place / "two", *of_two, look=processors.look)
        between = [later - earlier for earlier, later in zip(two["processor_s"], two["processor_s"][1:], strict=False)]
        found["two_stages"] = {"first_s": two["processor_s"][0], "next_s": median(between)}
    return found


def summarised(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The result of all repeats: medians."""
    return {
        "spec": STUDY.name,
        "short": _SHORT,
        "long": _LONG,
        "trial_s": TRIAL_S,
        "slots": _SLOTS,
        "repeats": list(found),
        "import_s": median(entry["import_s"] for entry in found),
        "beyond_training_s": median(entry["warm"]["trial_s"] for entry in found),
        "a_minute": median(entry["rate"]["a_minute"] for entry in found),
        "next_of_two_stages_s": median(entry["two_stages"]["next_s"] for entry in found),
    }


def main() -> None:
    if sys.argv[1:] == ["--once"]:
        print(json.dumps(measured()))  # noqa: T201
        return
    given = settings(__doc__, repeats=3)
    found = []
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    for _ in range(given.repeats):
        command = [sys.executable, "-m", "benchmarks.trials", "--once"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        found.append(json.loads(done.stdout.splitlines()[-1]))
        print(found[-1], flush=True)  # noqa: T201
    write_results("trials", summarised(found))


if __name__ == "__main__":
    main()
