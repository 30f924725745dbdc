"""What it costs a run that its checkpoints outlast a power cut: epochs with `fsync`, and epochs without.

    python -m benchmarks.syncs [key=value ...]

One run of the quickstart in this process, with a checkpoint after each epoch. Epochs come in pairs: in one of the two,
by turns the first, every `fsync` waits for the disk, in the other none does. A stage writes its files while the
mini-batches of the next epoch go on. So an epoch is counted from the cut of its checkpoint to the next cut.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from alray.core.storage import disk
from alray.orchestrate import Options, run_spec
from alray.runtime.stage.checkpoint_writer import CheckpointWriter
from benchmarks.intervals import mean_interval
from benchmarks.runs import write_results

SPEC = Path(__file__).parents[1] / "specs" / "quickstart.yaml"
PAIRS = 40


class _Silent:
    """Neither shows nor stops the run."""

    count, reason, error = 0, "on request", None

    def __getattr__(self, name: str) -> Any:
        return lambda *given: None


class _Turns:
    """Notes when each checkpoint is cut on the last stage, and lets every second pair begin with `fsync`."""

    def __init__(self) -> None:
        self.cuts_s: list[float] = []
        self.syncs = 0
        self.sync_s = 0.0
        self._last = 0
        self._write, self._sync = CheckpointWriter.write, disk.sync

    @property
    def waits(self) -> bool:
        return self.with_sync(len(self.cuts_s) - 1)

    @staticmethod
    def with_sync(epoch: int) -> bool:
        """Whether the epoch after this checkpoint, counted from 0, waits for the disk."""
        return epoch % 4 in (0, 3)

    def write(self, writer: CheckpointWriter, components: Any, step: int, *given: Any, **more: Any) -> None:
        if step > self._last:
            self._last = step
            self.cuts_s.append(time.perf_counter())
        self._write(writer, components, step, *given, **more)

    def sync(self, descriptor: int, file: Path) -> None:
        if self.waits:
            began = time.perf_counter()
            self._sync(descriptor, file)
            self.syncs += 1
            self.sync_s += time.perf_counter() - began


def measure(spec: Path, folder: Path, overrides: list[str], *, pairs: int) -> dict[str, Any]:
    """The seconds of each epoch of so many pairs, and the interval of the ratio of the two of a pair."""
    turns = _Turns()
    ends = [f"run.epochs={2 * pairs + 2}", "run.evaluate_every=null", "run.checkpoint={every: 1 epoch, keep: 3}"]
    with (
        patch.object(CheckpointWriter, "write", lambda self, *given, **more: turns.write(self, *given, **more)),
        patch.object(disk, "sync", turns.sync),
    ):
        options = Options(inline=True, run_dir=folder / "run", pages=False)
        run_spec(spec, [*overrides, *ends], options, _Silent(), _Silent())
    epochs_s = [after - before for before, after in zip(turns.cuts_s, turns.cuts_s[1:], strict=False)]
    found = []
    for pair in range(pairs):
        both = {turns.with_sync(epoch): epochs_s[epoch] for epoch in (2 * pair, 2 * pair + 1)}
        found.append({"with_s": both[True], "without_s": both[False]})
    ratio = mean_interval([pair["with_s"] / pair["without_s"] for pair in found])
    syncs = {"syncs_an_epoch": turns.syncs / (pairs + 1), "sync_s": turns.sync_s / max(1, turns.syncs)}
    return {"spec": spec.name, "pairs": found, "ratio": ratio._asdict(), **syncs}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        result = measure(SPEC, Path(folder), sys.argv[1:], pairs=PAIRS)
    ratio = result["ratio"]
    told = f"{result['syncs_an_epoch']:.0f} syncs of {1000 * result['sync_s']:.1f} ms an epoch: "
    told += f"{ratio['mean']:.4f} times as long, 95 % interval {ratio['low']:.4f} to {ratio['high']:.4f}"
    print(told)  # noqa: T201
    write_results("syncs", result)


if __name__ == "__main__":
    main()
