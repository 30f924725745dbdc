"""The table of training to a target over links."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import links_table


def trial(variant: str, seed: int, seconds_to_target: float | None) -> dict[str, object]:
    sent = {"steps": 10, "bytes_sent": 1e5, "all_reduce_bytes": 2e5 if variant == "diloco" else None}
    return {"variant": variant, "seed": seed, "seconds_to_target": seconds_to_target, **sent}


def test_a_way_is_compared_with_one_host_and_over_slower_links_with_itself(tmp_path: Path) -> None:
    alone = [trial("bp", 0, 1.0), trial("bp", 1, 4.0)]
    fast = [trial(way, seed, 2.0) for way in links_table.WAYS for seed in (0, 1)]
    slow = [trial(way, seed, 3.0) for way in links_table.WAYS if way != "al" for seed in (0, 1)]
    found = {"5": [*alone, *slow, trial("al", 0, None), trial("al", 1, 3.0)], "1000": [*alone, *fast]}
    (tmp_path / "links.json").write_text(json.dumps(found), encoding="utf-8")
    rows = links_table.over_links(tmp_path).splitlines()
    assert rows[0] == "| way | 1 Gbit/s, over one host | 5 Mbit/s | MB sent |"
    assert "| DGL | 1.00 (0.50 to 2.00) | 1.5 | 1 |" in rows
    assert "| AL | 1.00 (0.50 to 2.00) | 1 of 2 | 1 |" in rows
    assert any(row.startswith("| two replicas, averaged") and row.endswith("| 3 |") for row in rows)
