"""Time to a target over a real link between two hosts, for each way to train: the study `links` at each bandwidth.

    python -m benchmarks.links [BANDWIDTH ...]      in Mbit/s; about forty minutes for all, as root

The hosts are namespaces of this machine (tests/cluster/hosts.py), with one processor each. The kernel holds back what
one sends to the other, whether stages or replicas send it. Each bandwidth is written when it is measured, and the table
of docs/crossover.md is made of them.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.runs import MEASURED, write_results
from tests.cluster.hosts import HEAD_PORT, Hosts

ROOT = Path(__file__).parents[1]
STUDY = ROOT / "specs" / "studies" / "laptop" / "links.yaml"
MBIT_PER_S = (10_000, 1_000, 200, 50, 5)
_OF_REPLICAS = "all_reduce_bytes"


def measure(hosts: Hosts, mbit_per_s: int, *overrides: str) -> list[dict[str, Any]]:
    """The trials of the study over a link of this bandwidth. Ends the program if the study does not finish."""
    limit = f"tc qdisc replace dev eth0 root tbf rate {mbit_per_s}mbit burst {_burst(mbit_per_s)} latency 400ms"
    for number in (1, 2):
        subprocess.run(hosts.on(number, *limit.split()), check=True)
    folder = hosts.folder / f"{mbit_per_s}"
    address = f"{hosts.address(1)}:{HEAD_PORT}"
    process = hosts.start(1, "study", str(STUDY), *overrides, "--address", address, "--output", str(folder))
    _, said = process.communicate()
    if process.returncode != 0:
        raise SystemExit(said)
    with (folder / "tables" / "trials.csv").open(newline="", encoding="utf-8") as file:
        return [_trial(row) for row in csv.DictReader(file)]


def _burst(mbit_per_s: int) -> int:
    """Bytes that may leave at once: what a millisecond carries, at least two packets of Ethernet's size."""
    return max(mbit_per_s * 125, 32_000)


def _trial(row: dict[str, str]) -> dict[str, Any]:
    """What is kept of a row of the table. Figures that a trial does not have are None."""
    kept: dict[str, Any] = {name: row[name] for name in ("variant", "status")}
    for name in ("seed", "steps", "step_time_s", "steps_to_target", "seconds_to_target", "bytes_sent", _OF_REPLICAS):
        kept[name] = float(row[name]) if row[name] else None
    return kept


def main(bandwidths: list[int], *overrides: str) -> None:
    written = MEASURED / "links.json"
    found = json.loads(written.read_text(encoding="utf-8")) if written.is_file() else {}
    with tempfile.TemporaryDirectory() as folder:
        hosts = Hosts(Path(folder))
        try:
            hosts.up()
            for number in (1, 2):
                hosts.ray(number, 1)
            for mbit_per_s in bandwidths:
                found[str(mbit_per_s)] = measure(hosts, mbit_per_s, *overrides)
                write_results("links", found)
        finally:
            hosts.down()


if __name__ == "__main__":
    asked = [word for word in sys.argv[1:] if word.isdigit()]
    main([int(word) for word in asked] or list(MBIT_PER_S), *(word for word in sys.argv[1:] if not word.isdigit()))
