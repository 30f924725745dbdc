"""Make the pictures of docs/methods.md and docs/pipelines.md from runs of the quickstart on two stages.

python -m benchmarks.pictures     some two minutes
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import vl_convert

from alray.config.sections.pipeline import Cost

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
QUICKSTART = "specs/quickstart.yaml"
OF_QUICKSTART = ("network", "accuracy_per_depth")
BUSY = "while True: pass"
"""What takes a processor away from the run whose schedule is shown."""
_LARGE_BYTES = 100_000
"""A drawing with more bytes than this becomes a PNG: it has a mark for every action or mini-batch."""


def keep(drawing: Path, name: str) -> None:
    """Put one drawing of a report into docs/pictures."""
    for old in PICTURES.glob(f"{name}.*"):
        old.unlink()
    if drawing.stat().st_size > _LARGE_BYTES:
        png = vl_convert.svg_to_png(drawing.read_text(encoding="utf-8"), scale=1.5)
        (PICTURES / f"{name}.png").write_bytes(png)
    else:
        shutil.copyfile(drawing, PICTURES / f"{name}.svg")


@contextmanager
def busy(programs: int) -> Iterator[None]:
    """So many programs that compute all the time."""
    running = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(programs)]
    yield
    for program in running:
        program.kill()
        program.wait()


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as scratch:

        def run(name: str, *overrides: str) -> Path:
            folder = Path(scratch, name)
            for words in (["run", QUICKSTART, *overrides, "--output", folder], ["report", folder]):
                subprocess.run([sys.executable, "-m", "alray", *map(str, words)], cwd=ROOT, check=True)
            return folder / "figures"

        figures = run("quickstart")
        for name in OF_QUICKSTART:
            keep(figures / f"{name}.svg", name)
        # The plan is made from the costs of a machine that does nothing else.
        measured = json.loads((figures.parent / "plan.json").read_text(encoding="utf-8"))["costs"]["components"]
        costs = [{key: each[key] for key in Cost.model_fields} for each in measured]
        with busy(2):
            keep(run("busy", f"pipeline.costs={json.dumps(costs)}", "run.epochs=2") / "schedule.svg", "busy_schedule")


if __name__ == "__main__":
    main()
