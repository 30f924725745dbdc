"""What benchmarks share: runs of a spec, how several of them are asked for, and where their figures go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alray.core.run_folder.records import Record, read
from alray.core.run_folder.store import manifests

RESULTS = Path(__file__).parent / "results"
"""The published figures, of which the pages in docs are made."""
MEASURED = Path(__file__).parents[1] / "build" / "benchmarks"
"""What benchmarks measure, until `make publish` puts it among the published figures."""
Runner = Callable[..., dict[str, Any]]
"""Runs a spec with overrides and returns its summary, as `summary_of` does."""
Comparer = Callable[..., list[dict[str, Any]]]
"""Plans a spec in every schedule on every number of stages, the best first, as `comparison_of` does."""


def summary_of(spec: Path, *overrides: str, inline: bool = False) -> dict[str, Any]:
    """`alray run --json` as users run it: a separate process, its summary read from standard output."""
    with tempfile.TemporaryDirectory() as folder:
        where = ["--output", str(Path(folder) / "run")] + (["--inline"] if inline else [])
        return answer("run", str(spec), *overrides, *where)


@dataclass(frozen=True)
class Recorded:
    """What a run left: its summary, all its records, and the manifests of its checkpoints, oldest first."""

    summary: dict[str, Any]
    records: list[Record]
    manifests: list[dict[str, Any]]


def recorded(spec: Path, *overrides: str, inline: bool = False) -> Recorded:
    """`summary_of` with the rest of the run folder."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        where = ["--output", str(run_dir)] + (["--inline"] if inline else [])
        summary = answer("run", str(spec), *overrides, *where)
        return Recorded(summary, list(read(run_dir / "records.jsonl")), manifests(run_dir))


def comparison_of(spec: Path, *overrides: str) -> list[dict[str, Any]]:
    """The rows of `alray plan --compare` on costs that are measured then: the shortest step first."""
    rows: list[dict[str, Any]] = answer("plan", str(spec), *overrides, "--probe", "--compare")["rows"]
    return rows


def answer(*arguments: str) -> dict[str, Any]:
    """What a command of alray's answers with `--json`; ends the program where the command fails."""
    result: dict[str, Any] = json.loads(_output(["-m", "alray", *arguments, "--json"]))
    return result


def torch_run(module: str, processes: int, *arguments: str | Path) -> dict[str, Any]:
    """The JSON that a script of torch alone prints last, started by torchrun in processes of one thread each; ends the
    program where the script fails."""
    launch = ("--standalone", "--nproc-per-node", str(processes), "-m", module)
    return plain_run("torch.distributed.run", *launch, *arguments)


def plain_run(module: str, *arguments: str | Path) -> dict[str, Any]:
    """The JSON that a script without alray's executor prints last, one thread for each process; ends the program where
    the script fails."""
    one_thread = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    result: dict[str, Any] = json.loads(_output(["-m", module, *map(str, arguments)], **one_thread).splitlines()[-1])
    return result


def _output(arguments: list[str], **variables: str) -> str:
    """What Python prints with these arguments; ends the program where it fails."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def write_results(name: str, value: Any) -> None:
    """Write the figures of a benchmark to build/benchmarks, and say where they are. Of cases that they lack,
    `benchmarks.publish` keeps the published figures."""
    MEASURED.mkdir(parents=True, exist_ok=True)
    file = MEASURED / f"{name}.json"
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    print(f"written: {file}")  # noqa: T201


def settings(description: str | None, *, repeats: int) -> Namespace:
    """`repeats` and `overrides` from the command line."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=repeats, help=f"runs of each (default {repeats})")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as for `alray run`, in every run")
    return parser.parse_args()


def described(figures: dict[str, Any]) -> str:
    """One line about a run: its step, measured and predicted."""
    measured, predicted = figures["step_time_s"], figures["predicted_step_time_s"]
    return f"{1e3 * measured:.1f} ms measured, {1e3 * predicted:.1f} ms predicted ({predicted / measured:.3f})"
