"""Durations as text."""

from __future__ import annotations

import pytest

from alray.config.sections.duration import Duration, parse_duration


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("1 epoch", Duration(1, "epochs")),
        ("20 epochs", Duration(20, "epochs")),
        ("0.5 epochs", Duration(0.5, "epochs")),
        ("1 step", Duration(1, "steps")),
        ("500 steps", Duration(500, "steps")),
        ("1 sample", Duration(1, "samples")),
        ("4096 samples", Duration(4096, "samples")),
        ("30 s", Duration(30, "s")),
        ("1 s", Duration(1, "s")),
        ("1.5 s", Duration(1.5, "s")),
    ],
)
def test_reads_and_prints_back(text: str, duration: Duration) -> None:
    assert parse_duration(text) == duration
    assert str(duration) == text


def test_singular_and_plural_read_alike() -> None:
    assert parse_duration("1 epochs") == parse_duration("1 epoch") == parse_duration("1epoch")


@pytest.mark.parametrize("text", ["3 weeks", "epoch", "-1 steps", "1 epoch\n", "0 steps", "1.5 steps", "1.5 samples"])
def test_refusals(text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected a "):
        parse_duration(text)
