"""The table of training to a target over links."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import links_table


def trial(variant: str, seed: int, seconds_to_target: float | None) -> dict[str, object]:
    sent = {"steps": 10, "bytes_sent": 1e5, "all_reduce_bytes": 2e5 if variant == "diloco" else None}
    return {"variant": variant, "seed": seed, "seconds_to_target": seconds_to_target, **sent}


def test_times_are_those_over_one_device_seed_by_seed(tmp_path: Path) -> None:
    alone = [trial("bp", 0, 1.0), trial("bp", 1, 4.0)]
    ways = [trial(way, seed, 2.0) for way in links_table.WAYS if way != "al" for seed in (0, 1)]
    found = {"5": [*alone, *ways, trial("al", 0, None), trial("al", 1, 3.0)], "1000": [*alone, *ways]}
    found["1000"] += [trial("al", 0, 8.0), trial("al", 1, 8.0)]
    (tmp_path / "links.json").write_text(json.dumps(found), encoding="utf-8")
    rows = links_table.over_links(tmp_path).splitlines()
    assert rows[0] == "| way | 1 Gbit/s | 5 Mbit/s | MB sent |"
    assert "| DGL | 1.00 | 1.00 | 1 |" in rows
    assert "| AL | 4.00 | 1 of 2 | 1 |" in rows
    assert any(row.startswith("| two replicas, averaged") and row.endswith("| 3 |") for row in rows)
