"""The benchmark of two busy stages: its specs load in every way, and what it concludes of a summary made up here."""

from __future__ import annotations

import pytest

from alray.config.loading.load import load_spec
from benchmarks.two_busy import NETWORKS, WAYS, figures, given


def test_a_step_is_computing_and_waiting() -> None:
    """Of 10 ms measured 8 are computing, of 8 ms predicted 7.2."""
    summary = {"step_time_s": 0.010, "predicted_step_time_s": 0.008, "bubble": 0.2, "predicted_bubble": 0.1}
    assert figures(summary) == pytest.approx(
        {"step_time_s": 0.010, "ratio": 0.8, "computing": 0.9, "waiting_s": 0.0012}
    )


def test_every_network_runs_in_every_way() -> None:
    specs = [load_spec(spec, given(way)).spec for spec in NETWORKS.values() for way in WAYS]
    assert {(each.pipeline.stages, each.replicas.count) for each in specs} == {(1, 1), (2, 1), (1, 2)}
    assert {each.resources.threads for each in specs} == {1}
