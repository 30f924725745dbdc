"""From Enter to the first mini-batch: `alray run` on Ray, beside a plain script with Ray and torch alone.

    python -m benchmarks.start

Each repeat runs one after the other, so that a ratio compares neighbours in time; then `alray plan`, beside a Python
that imports torch, for the processor time of both.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from alray.core.run_folder.records import StepRecord, read
from benchmarks.runs import settings, write_results

SPEC = Path(__file__).parents[1] / "specs" / "quickstart.yaml"
LIMIT_S = 300.0
_LOOKING_S = 0.005
_ENVIRONMENT = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}


class Start(NamedTuple):
    """Seconds from Enter to the first line of output, and to the end of the first mini-batch."""

    first_line_s: float
    first_mini_batch_s: float


def alray(*overrides: str) -> Start:
    """Run the spec until its first mini-batch is trained, then stop it. Ends the program if the run fails before."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        command = [sys.executable, "-m", "alray", "run", str(SPEC), *overrides, "--output", str(run_dir)]
        entered = time.time()
        with (Path(folder) / "said").open("w+", encoding="utf-8") as said:
            process = subprocess.Popen(command, stdout=said, stderr=said, env=_ENVIRONMENT)
            try:
                first_line = _when(lambda: os.fstat(said.fileno()).st_size, process, said)
                records = run_dir / "records.jsonl"
                began = _when(lambda: _first(records), process, said) - _first(records).time_s
                _when(lambda: _first(records, StepRecord), process, said)
                trained = began + _first(records, StepRecord).time_s
                process.send_signal(signal.SIGINT)  # ends after this mini-batch, with a checkpoint
                process.wait(LIMIT_S)
            finally:
                process.kill()
        return Start(first_line - entered, trained - entered)


def _when(there: Callable[[], Any], process: subprocess.Popen[bytes], said: Any) -> float:
    """When something is there; ends the program if the process ends first."""
    until = time.time() + LIMIT_S
    while not there():
        if process.poll() is not None or time.time() > until:
            said.seek(0)
            raise SystemExit(f"alray ended with {process.returncode}:\n{said.read()}")
        time.sleep(_LOOKING_S)
    return time.time()


def _first(file: Path, kind: Any = object) -> Any:
    """The first record of a kind, as soon as it is written."""
    return next((record for record in read(file) if isinstance(record, kind)), None) if file.is_file() else None


def plain() -> float:
    """Seconds from Enter to the first message of `benchmarks.plain_start`."""
    command = [sys.executable, "-m", "benchmarks.plain_start"]
    entered = time.time()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_ENVIRONMENT, timeout=LIMIT_S)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return float(done.stdout.splitlines()[-1]) - entered


def processor_s(*arguments: str) -> float:
    """Processor seconds of a Python and of the processes it waited for."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


def measure(
    *overrides: str,
    repeats: int,
    run: Callable[..., Start] = alray,
    bare: Callable[[], float] = plain,
    processor: Callable[..., float] = processor_s,
) -> dict[str, Any]:
    """All of them `repeats` times; medians, of the ratio and the difference within each repeat."""
    found = []
    for _ in range(repeats):
        start = run(*overrides)
        found.append(
            {
                "first_line_s": start.first_line_s,
                "first_mini_batch_s": start.first_mini_batch_s,
                "plain_s": bare(),
                "plan_processor_s": processor("-m", "alray", "plan", str(SPEC), *overrides),
                "torch_processor_s": processor("-c", "import torch"),
            }
        )
        print(found[-1], flush=True)  # noqa: T201
    return {
        "spec": SPEC.name,
        "overrides": list(overrides),
        "repeats": found,
        "over_plain": median(entry["first_mini_batch_s"] / entry["plain_s"] for entry in found),
        "first_line_s": max(entry["first_line_s"] for entry in found),
        "plan_beyond_torch_s": median(entry["plan_processor_s"] - entry["torch_processor_s"] for entry in found),
    }


def main() -> None:
    given = settings(__doc__, repeats=5)
    write_results("start", measure(*given.overrides, repeats=given.repeats))


if __name__ == "__main__":
    main()
