"""The predicted peak memory of each stage beside what torch's MemTracker counts while it trains, on the CPU.

    python -m benchmarks.memory

Four networks, by Associated Learning and by backpropagation, whole and cut, three mini-batches each.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks.memory_networks import NETWORKS, REALISTIC, WAYS, Size, costs_of, network_of, plan_of, predicted_bytes
from benchmarks.runs import write_results
from benchmarks.tracked_memory import tracked_peak_bytes


def measure(size: Size) -> list[dict[str, Any]]:
    """One entry for each stage of each network and way."""
    entries = []
    for name in NETWORKS:
        for method in dict.fromkeys(way.method for way in WAYS):
            network = network_of(name, method, size)
            costs = costs_of(network, size)
            for way in (way for way in WAYS if way.method == method):
                plan = plan_of(way, costs)
                for stage in range(plan.stages):
                    entries.append(
                        {
                            "network": name,
                            "way": way.name,
                            "stage": stage,
                            "predicted_bytes": predicted_bytes(plan, stage),
                            "measured_bytes": tracked_peak_bytes(network, plan, stage),
                        }
                    )
                    print(entries[-1], flush=True)  # noqa: T201
    return entries


def main() -> None:
    write_results("memory", {"size": asdict(REALISTIC), "stages": measure(REALISTIC)})


if __name__ == "__main__":
    main()
