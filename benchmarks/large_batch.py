"""Large mini-batches with and without warm-up, beside a small one.

    python -m benchmarks.large_batch

Trains specs/laptop/large_batch_fashion_mnist.yaml as it is, without warm-up, with the rate left as it is for a small
mini-batch, and with a small mini-batch, over several seeds and the same number of samples.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from alray.core.run_folder.records import EvaluationRecord
from benchmarks.runs import Recorded, recorded, settings, write_results

SPEC = Path(__file__).parents[1] / "specs" / "laptop" / "large_batch_fashion_mnist.yaml"
SMALL = 128
WAYS: dict[str, tuple[str, ...]] = {
    "small": (f"data.batch_size={SMALL}",),
    "large, rate scaled, warm-up": (),
    "large, rate scaled": ("lr_schedule.warmup_epochs=0",),
    "large, rate as it was": ("lr_schedule.warmup_epochs=0", "lr_schedule.scale_with_batch=none"),
}


def measure(*overrides: str, repeats: int, run: Callable[..., Recorded] = recorded) -> dict[str, Any]:
    """Test accuracy of every way and seed after each epoch, and the number of mini-batches."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for seed in range(repeats):
        for way, own in WAYS.items():
            figures = figures_of(run(SPEC, *own, f"seed={seed}", *overrides))
            runs[way].append(figures)
            print(f"{way}, seed {seed}: {json.dumps(figures['accuracies'])}", flush=True)  # noqa: T201
    return {"spec": SPEC.name, "overrides": list(overrides), "runs": runs}


def figures_of(done: Recorded) -> dict[str, Any]:
    """How one run went; accuracies are of the test set, shares of 0..1."""
    return {
        "steps": done.summary["steps"],
        "batch_size": sum(done.summary["shares"]),
        "accuracies": [record.test for record in done.records if isinstance(record, EvaluationRecord)],
    }


def mean_accuracy(runs: Sequence[dict[str, Any]], evaluation: int) -> float:
    """Of all seeds, after that evaluation."""
    return fmean(entry["accuracies"][evaluation] for entry in runs)


def main() -> None:
    given = settings(__doc__, repeats=3)
    write_results("large_batch", measure(*given.overrides, repeats=given.repeats))


if __name__ == "__main__":
    main()
