"""Replica throughput: two replicas by alray, by a plain script with torch's DDP, and by Ray Train's TorchTrainer.

    python -m benchmarks.replicas

Each repeat runs all three one after another, so that a ratio compares neighbours in time: the same network, mini-batch
and optimizer, gloo, one thread each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.runs import Runner, settings, summary_of, torch_run, write_results

SPEC = Path(__file__).with_name("replicas.yaml")
REPLICAS = 2


def plain_ddp(spec: Path, *overrides: str) -> float:
    """Seconds of a mini-batch of `benchmarks.plain_ddp`, in separate processes."""
    return float(torch_run("benchmarks.plain_ddp", REPLICAS, spec, *overrides)["step_time_s"])


def measure(
    *overrides: str, repeats: int, run: Runner = summary_of, ddp: Callable[..., float] = plain_ddp
) -> dict[str, Any]:
    """Seconds of a mini-batch of all three, `repeats` times, and the medians of the ratios within each repeat."""
    found = []
    for _ in range(repeats):
        found.append(
            {
                "graph_s": run(SPEC, *overrides)["step_time_s"],
                "plain_ddp_s": ddp(SPEC, *overrides),
                "ray_train_s": run(SPEC, "replicas.engine=ray_train", *overrides)["step_time_s"],
            }
        )
        print(found[-1], flush=True)  # noqa: T201
    return {
        "spec": SPEC.name,
        "overrides": list(overrides),
        "repeats": found,
        "over_plain_ddp": median(entry["plain_ddp_s"] / entry["graph_s"] for entry in found),
        "over_ray_train": median(entry["ray_train_s"] / entry["graph_s"] for entry in found),
    }


def main() -> None:
    given = settings(__doc__, repeats=5)
    write_results("replicas", measure(*given.overrides, repeats=given.repeats))


if __name__ == "__main__":
    main()
