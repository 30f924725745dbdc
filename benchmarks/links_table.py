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
_TIME = "seconds_to_target"
Trial = dict[str, Any]


def over_links(results: Path = RESULTS) -> str:
    """The time of each way to the target.

    Over the fastest link it is divided by that of backpropagation on one of the hosts, with the least and the most of
    the seeds; over each other link by its own over the fastest. Means over seeds are geometric. Where trials did not
    reach the target, the table says how many did. The last column is what a way sent, in megabytes.
    """
    found: dict[str, list[Trial]] = json.loads((results / "links.json").read_text(encoding="utf-8"))
    fastest, *others = sorted(found, key=int, reverse=True)
    heads = [f"{_bandwidth(fastest)}, over one host", *map(_bandwidth, others), "MB sent"]
    lines = [f"| way | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for way, name in WAYS.items():
        own, alone = _by_seed(found[fastest], way), _by_seed(found[fastest], ONE_DEVICE)
        cells = [_ratio(own, alone, ends=True), *(_ratio(_by_seed(found[each], way), own) for each in others)]
        lines.append(f"| {name} | {' | '.join(cells)} | {_sent(own):.3g} |")
    return "\n".join(lines)


def _bandwidth(mbit_per_s: str) -> str:
    return f"{int(mbit_per_s) // 1000} Gbit/s" if int(mbit_per_s) >= 1000 else f"{mbit_per_s} Mbit/s"


def _ratio(trials: dict[float, Trial], beside: dict[float, Trial], *, ends: bool = False) -> str:
    """The time to the target over that beside it, seed by seed.

    Args:
        ends: with the least and the most.
    """
    times = [(each[_TIME], beside[seed][_TIME]) for seed, each in trials.items()]
    reached = [time / other for time, other in times if time is not None and other is not None]
    if len(reached) < len(times):
        return f"{len(reached)} of {len(times)}"
    middle = math.exp(fmean(map(math.log, reached)))
    return f"{middle:.2f} ({min(reached):.2f} to {max(reached):.2f})" if ends else f"{middle:.1f}"


def _sent(trials: dict[float, Trial]) -> float:
    """Megabytes that stages and replicas sent, the mean over trials. A trial keeps the bytes of one mini-batch."""
    sent = (
        each["steps"] * ((each["bytes_sent"] or 0.0) + (each["all_reduce_bytes"] or 0.0)) for each in trials.values()
    )
    return fmean(sent) / 1e6


def _by_seed(trials: list[Trial], way: str) -> dict[float, Trial]:
    return {each["seed"]: each for each in trials if each["variant"] == way}
