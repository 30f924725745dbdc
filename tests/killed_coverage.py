"""A plugin of coverage.py: a process that is killed has saved which lines it ran, up to half a second before.

coverage.py saves when a process ends. The processes of stages do not end by themselves, they are killed. To save does
not suffice: what is saved is forgotten, and a function that goes on running then counts for nothing. So the lines are
copied. Coverage starts in forks and processes of Ray too (`patch` in pyproject.toml), and loads its plugins there.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import coverage
from coverage import CoverageData

EVERY_S = 0.5


def coverage_init(registry: Any, options: dict[str, Any]) -> None:
    threading.Thread(target=_save_in_turns, name="coverage of killed", daemon=True).start()


def _save_in_turns() -> None:
    saved, process = 0, f"{os.getpid()}.{time.time_ns()}"
    while True:
        time.sleep(EVERY_S)
        running = coverage.Coverage.current()
        if running is None or running._collector is None:
            continue
        lines = {name: each.copy() for name, each in running._collector.data.copy().items()}
        count = sum(map(len, lines.values()))
        if count > saved:
            _save(Path(running.config.data_file), process, lines)
            saved = count


def _save(data_file: Path, process: str, lines: dict[str, Any]) -> None:
    """Replace what was saved before, at once: the process may be killed meanwhile."""
    soon = data_file.with_name(f"soon.{process}")
    data = CoverageData(basename=str(soon))
    data.add_lines(lines)
    data.close()
    soon.rename(data_file.with_name(f"{data_file.name}.killed.{process}"))
