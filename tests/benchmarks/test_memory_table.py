"""The table of predicted and measured memory, from figures made up here."""

from __future__ import annotations

from benchmarks.tables import memory


def test_the_table() -> None:
    stages = [
        {"network": "vgg", "way": "one", "stage": 0, "predicted_bytes": 10_500_000, "measured_bytes": 10_000_000},
        {"network": "vgg", "way": "two", "stage": 1, "predicted_bytes": 9_000_000, "measured_bytes": 10_000_000},
    ]
    lines = memory({"size": {"batch": 64}, "stages": stages})
    assert "| vgg | one | 0 | 10.5 | 10.0 | 1.050 |" in lines
    assert "The ratios are between **0.900** and **1.050**." in lines
