"""A run in Ray's dashboard and metrics: read back as Prometheus reads them, from the agent of the node."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from .conftest import LONG, Watching, Workshop

pytestmark = pytest.mark.own_ray


@pytest.fixture
def quick_metrics(own_ray: None) -> Iterator[str]:
    """A Ray that collects metrics twice a second instead of every ten seconds; the address of its agent's metrics."""
    import ray

    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        namespace="alray",
        _system_config={"metrics_report_interval_ms": 500},
    )
    (node,) = ray.nodes()
    yield f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    ray.shutdown()


@pytest.mark.full
def test_metrics_and_names_of_a_run(workshop: Workshop, quick_metrics: str) -> None:
    import ray

    seen: dict[tuple[str, ...], float] = {}
    names: set[str] = set()

    def look(statuses: Sequence[Any]) -> None:
        names.update(each["name"] for each in ray.util.list_named_actors(all_namespaces=True))
        text = urllib.request.urlopen(quick_metrics, timeout=5.0).read().decode()
        for name, tags, value in re.findall(r"^ray_alray_(\w+)\{(.*)\} (\S+)$", text, re.MULTILINE):
            own = dict(re.findall(r'(\w+)="([^"]*)"', tags))
            key = (name, own["run"], *(own[tag] for tag in ("replica", "stage") if tag in own))
            seen[key] = max(float(value), seen.get(key, 0.0))

    workshop.run(*LONG, "pipeline.partition=[2,2]", inline=False, name="watched", watching=Watching(on_statuses=look))
    assert set(seen) == {
        ("stage_busy_share", "watched", "0", "0"),
        ("stage_busy_share", "watched", "0", "1"),
        ("stage_queued_messages", "watched", "0", "1"),
        ("samples_per_second", "watched"),
    }
    assert 0.5 < seen["stage_busy_share", "watched", "0", "1"] <= 1.0, "it sleeps in its components"
    assert seen["stage_queued_messages", "watched", "0", "1"] >= 1, "the other stage is faster"
    assert 100 < seen["samples_per_second", "watched"] < 16 / 0.02
    assert {re.sub("alray-[0-9a-f]+", "TOKEN", name) for name in names} == {
        f"watched-TOKEN-replica-0-stage-{stage}" for stage in (0, 1)
    }
