"""The checks of `alray doctor --network`: the nodes of a Ray cluster, and the links between them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from alray.cli.check_result import CheckResult
from alray.report.text import size

if TYPE_CHECKING:
    from alray.graph.survey import NodeFacts

_MOST_APART_S = 1.0
_LEAST_SHARED_BYTES = 100e6
_LEAST_DISK_BYTES = 1e9
_MOST_PAIRED = 6
"""Of more nodes, only the links from each to the next are measured."""


def cluster_findings(address: str | None) -> Iterator[CheckResult]:
    """Check the cluster at this address (None: that of RAY_ADDRESS, or of this machine).

    Raises RequestError if none answers.
    """
    from alray.graph.cluster import connect, living_nodes
    from alray.graph.links import measure_links
    from alray.graph.survey import survey

    with connect(address or os.environ.get("RAY_ADDRESS") or "auto", []):
        found = living_nodes()
        facts = survey(found)
        known = [each for each in facts if not isinstance(each, str)]
        for node, each in zip(found, facts, strict=True):
            if isinstance(each, str):
                yield CheckResult(
                    f"node {node.host}", "fault", each, "install alray there, in the environment of `ray start`"
                )
            else:
                yield of_node(each, known[0])
        pairs = list(combinations(found, 2)) if len(found) <= _MOST_PAIRED else list(pairwise(found))
        notes: list[str] = []
        links = measure_links([(first.id, second.id) for first, second in pairs], notes.append)
        for first, second in pairs:
            link = links.get((first.id, second.id))
            if link is not None:
                yield CheckResult(f"link from {first.host} up to {second.host}", "ok", str(link))
        for note in notes:
            yield CheckResult(
                "link", "fault", note, "allow TCP between the nodes on all ports: Ray and gloo pick theirs"
            )


def of_node(node: NodeFacts, first: NodeFacts) -> CheckResult:
    """What there is to say of a node beside the first one, which all others are compared with."""
    name = f"node {node.host}"
    other = [
        f"{library} {version} instead of {first.versions[library]}"
        for library, version in node.versions.items()
        if version != first.versions[library]
    ]
    if other:
        return CheckResult(
            name, "fault", f"{', '.join(other)} as on {first.host}", "install the same versions on every node"
        )
    if abs(node.clock_s) > _MOST_APART_S:
        return CheckResult(
            name,
            "warning",
            f"its clock is {abs(node.clock_s):.1f} s {'ahead' if node.clock_s > 0 else 'behind'}",
            "run chrony or systemd-timesyncd on every node",
        )
    for what, nbytes, least, mend in (
        (
            "of shared memory",
            node.shared_memory_bytes,
            _LEAST_SHARED_BYTES,
            "start its container with a larger --shm-size",
        ),
        ("left on the disk of Ray", node.disk_bytes, _LEAST_DISK_BYTES, "free some space, or set RAY_TMPDIR there"),
    ):
        if nbytes < least:
            return CheckResult(name, "warning", f"{size(nbytes)} {what}", mend)
    versions = ", ".join(f"{library} {version}" for library, version in node.versions.items())
    devices = f"{node.cpus:g} CPU" + (f", {node.gpus:g} GPU" if node.gpus else "")
    return CheckResult(name, "ok", f"{devices}; {versions}")
