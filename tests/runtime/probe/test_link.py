"""The link between two hosts, here through the loopback interface."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from alray.runtime.probe import link


def test_both_ways_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "STREAM_S", 0.1)
    listener = link.listen("127.0.0.1")
    with ThreadPoolExecutor(max_workers=1) as threads:
        answered = threads.submit(link.answer, listener)
        latency_s, buffered_s, down_s_per_byte = link.ask("127.0.0.1", listener.getsockname()[1])
    assert 0 < latency_s < 0.05
    assert 0 <= buffered_s < 0.5
    assert all(1e-11 < each < 1e-7 for each in (down_s_per_byte, answered.result()))


def test_an_end_that_leaves_is_an_error() -> None:
    listener = link.listen("127.0.0.1")
    port = listener.getsockname()[1]
    listener.close()
    with pytest.raises(OSError, match="refused"):
        link.ask("127.0.0.1", port)
