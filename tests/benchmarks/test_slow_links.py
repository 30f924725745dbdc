"""The benchmark of slow links finds the link that it says, and tells what each way loses there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from alray.config.loading.load import load_spec
from benchmarks import slow_links


def answered(spec: Path, *overrides: str) -> dict[str, Any]:
    """A run in a world where computing takes 0.1 s and 1F1B waits for all its bytes, streaming for none."""
    loaded = load_spec(spec, list(overrides)).spec
    messages, link = loaded.pipeline.messages, loaded.pipeline.links[0]
    sent = 1e6 if messages is None else 1e5
    waits = loaded.method.kind == "backpropagation"
    step_s = 0.1 + (sent * link.s_per_byte if waits else 0.0)
    return {
        "steps": 30,
        "step_time_s": step_s,
        "predicted_step_time_s": step_s,
        "bytes_sent": {"0->1": 30 * sent},
        "uncompressed_bytes": None if messages is None else {"0->1": 30 * 1e6},
        "weights_sha256": str(messages),
    }


def test_what_each_way_loses_where_1f1b_loses_most(capsys: pytest.CaptureFixture[str]) -> None:
    found = slow_links.measure(repeats=1, run=answered)
    ways = found["ways"]
    assert all(5 <= ratio <= 5.5 for ratio in ways["1F1B"]["over_fast"])
    assert ways["streamed DGL, int4"]["over_fast"] == pytest.approx([1.0, 1.0])
    assert ways["streamed DGL, int4"]["sent_share"] == pytest.approx(0.1)
    assert all(way["same_bits"] for way in ways.values())
    row = "| streamed DGL, int4 | 100.0 | 100.0 | 100.0 | 100.0 | 1.000 (1.000 to 1.000) |"
    assert row in slow_links.table(found)
