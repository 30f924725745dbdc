"""Make the pictures of docs/local_learning.md and docs/timeline.md: the quickstart on two stages, by AL and by BP.

python -m benchmarks.pictures     some two minutes; nothing else should use the processors
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import vl_convert

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
QUICKSTART = "specs/quickstart.yaml"
BACKPROPAGATION = ("method=backpropagation", "pipeline.schedule=naive")
OF_AL = ("network", "schedule", "loss_associated", "accuracy_per_depth")
OF_BACKPROPAGATION = ("schedule",)
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


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as scratch:

        def picture(name: str, overrides: Sequence[str], figures: Sequence[str]) -> None:
            run = Path(scratch, name)
            for words in (["run", QUICKSTART, *overrides, "--run-dir", run], ["report", run]):
                subprocess.run([sys.executable, "-m", "alray", *map(str, words)], cwd=ROOT, check=True)
            for figure in figures:
                keep(run / "figures" / f"{figure}.svg", f"{name}_{figure}")

        picture("al", (), OF_AL)
        picture("backpropagation", BACKPROPAGATION, OF_BACKPROPAGATION)


if __name__ == "__main__":
    main()
