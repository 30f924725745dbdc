"""The table of docs/crossover.md of training to a target over a link between two hosts, from the trials of
`benchmarks.links`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.runs import RESULTS

WAYS = {
    "dgl": "DGL",
    "dgl_int8": "DGL, messages of 8 bits",
    "al": "AL",
    "al_int8": "AL, messages of 8 bits",
    "1f1b": "1F1B, M = 2",
    "1f1b_int8": "1F1B, M = 2, messages of 8 bits",
    "2bw": "2BW, M = 4",
    "2bw_int8": "2BW, M = 4, messages of 8 bits",
    "replicas": "two replicas",
    "replicas_powersgd": "two replicas, PowerSGD of rank 2",
    "diloco": "two replicas, averaged every 20 mini-batches (DiLoCo)",
}
ONE_DEVICE = "bp"
Trial = dict[str, Any]


def over_links(results: Path = RESULTS) -> str:
    """The time of each way to the target over that of backpropagation on one of the hosts, the geometric mean over
    seeds, and the megabytes that it sent until then. Where trials did not reach the target, how many did."""
    found: dict[str, list[Trial]] = json.loads((results / "links.json").read_text(encoding="utf-8"))
    bandwidths = sorted(found, key=int, reverse=True)
    lines = [
        f"| way | {' | '.join(map(_bandwidth, bandwidths))} | MB sent |",
        f"|---|{'---:|' * (len(bandwidths) + 1)}",
    ]
    for way, name in WAYS.items():
        cells = [_ratio(found[each], way) for each in bandwidths]
        lines.append(f"| {name} | {' | '.join(cells)} | {_sent(found[bandwidths[0]], way):.3g} |")
    return "\n".join(lines)


def _bandwidth(mbit_per_s: str) -> str:
    return f"{int(mbit_per_s) // 1000} Gbit/s" if int(mbit_per_s) >= 1000 else f"{mbit_per_s} Mbit/s"


def _ratio(trials: list[Trial], way: str) -> str:
    alone, own = _by_seed(trials, ONE_DEVICE), _by_seed(trials, way)
    times = [(each["seconds_to_target"], alone[seed]["seconds_to_target"]) for seed, each in own.items()]
    reached = [pair for pair in times if None not in pair]
    if len(reached) < len(times):
        return f"{len(reached)} of {len(times)}"
    return f"{math.exp(fmean(math.log(time / beside) for time, beside in reached)):.2f}"


def _sent(trials: list[Trial], way: str) -> float:
    """Megabytes that stages and replicas sent until the end of a trial. Trials have those of a mini-batch."""
    return (
        fmean(
            each["steps"] * ((each["bytes_sent"] or 0.0) + (each["all_reduce_bytes"] or 0.0))
            for each in _by_seed(trials, way).values()
        )
        / 1e6
    )


def _by_seed(trials: list[Trial], way: str) -> dict[float, Trial]:
    return {each["seed"]: each for each in trials if each["variant"] == way}
