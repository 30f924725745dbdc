"""The two engines that can run a plan: Ray actors, or this one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from alray.graph.graph import Graph
from alray.graph.inline import InlineGraph
from alray.run.job import Job


@contextmanager
def engine(
    job: Job, *, inline: bool, address: str | None, run_token: str, note: Callable[[str], None]
) -> Iterator[Callable[[], Graph]]:
    """A maker of graphs. With Ray, the cluster is there for as long as the block lasts."""
    if inline:
        yield InlineGraph
        return
    from alray.graph.cluster import connect

    bundles = job.bundles()
    with connect(address, bundles) as cluster:
        for warning in cluster.warnings:
            note(warning)
        from alray.graph.ray_graph import RayGraph

        yield lambda: RayGraph(bundles, run_token=run_token)
