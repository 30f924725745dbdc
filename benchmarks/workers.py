"""Synchronous SGD on more workers: measured on one and two, counted for more over links of three bandwidths.

    python -m benchmarks.workers

Any number of replicas takes the same mini-batches to the target, so the time to it is their number times that of one.
Both workers are processes of this machine, of one thread each; the plan has the costs of one of them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.runs import answer, summary_of, write_results

SPEC = Path(__file__).parents[1] / "specs" / "laptop" / "mlp_fashion_mnist.yaml"
NETWORK = (
    "model.components=[{block: mlp, widths: [512], repeat: 4}]",
    "data.batch_size=512",
    "data.image_size=null",
    "optimizer={kind: adam, lr: 1.0e-3}",
    "run.stop_at={above: 0.87}",
)
MEASURED = (1, 2)
COUNTED = (2, 4, 8, 16)
LINKS = ("10 Gbit/s", "1 Gbit/s", "100 Mbit/s")
_KEPT = ("steps", "step_time_s", "samples_per_s", "all_reduce_bytes", "weights_sha256")


def measure(*overrides: str) -> dict[str, Any]:
    """What one and two workers took, and what a plan says of more."""
    spec: tuple[Path | str, ...] = (SPEC, *NETWORK, *overrides)
    measured = {}
    for count in MEASURED:
        found = summary_of(SPEC, *NETWORK, *overrides, f"replicas.count={count}")
        measured[str(count)] = {key: found[key] for key in _KEPT}
    with tempfile.TemporaryDirectory() as folder:
        costs = str(Path(folder) / "costs.json")
        answer("probe", *map(str, spec), "--output", costs)
        counted = {link: {str(count): _planned(spec, count, link, costs) for count in COUNTED} for link in LINKS}
    return {"spec": SPEC.name, "overrides": [*NETWORK, *overrides], "measured": measured, "counted": counted}


def _planned(spec: tuple[Path | str, ...], count: int, link: str, costs: str) -> float:
    """Seconds of a mini-batch on so many machines."""
    machines = ("--on", f"{count}x1xCPU", "--link", link, "--costs", costs)
    planned: float = answer("plan", *map(str, spec), f"replicas.count={count}", *machines)["predicted_step_time_s"]
    return planned


if __name__ == "__main__":
    write_results("workers", measure())
