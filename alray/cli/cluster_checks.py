"""The checks of `alray doctor --network`: the nodes of a Ray cluster, and the links between them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from alray.cli.check_result import CheckResult
from alray.core.counting import counted
from alray.report.text import size

if TYPE_CHECKING:
    from alray.runtime.cluster.survey import NodeFacts

_MOST_APART_S = 1.0
_LEAST_SHARED_BYTES = 100e6
_LEAST_DISK_BYTES = 1e9
_MOST_PAIRED = 6
"""The most nodes between all of which links are measured. With more, only those from each node to the next are."""


def cluster_findings(address: str | None) -> Iterator[CheckResult]:
    """Check the cluster at this address (None: that of RAY_ADDRESS, or of this machine).

    Raises RequestError if none answers.
    """
    from alray.runtime.cluster.connect import connect
    from alray.runtime.cluster.links import measure_links
    from alray.runtime.cluster.nodes import living_nodes
    from alray.runtime.cluster.survey import survey

    with connect(address or os.environ.get("RAY_ADDRESS") or "auto", []):
        found = living_nodes()
        facts = survey(found)
        known = [each for each in facts if not isinstance(each, str)]
        alive = {node.id for node in living_nodes()}
        for node, each in zip(found, facts, strict=True):
            if isinstance(each, str):
                there = "install alray there, in the environment of `ray start`"
                gone = "the node has gone: start Ray there again"
                yield CheckResult(f"node {node.host}", "fault", each, there if node.id in alive else gone)
            else:
                yield from of_node(each, known)
        yield from access_to(known)
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


def access_to(known: Sequence[NodeFacts]) -> Iterator[CheckResult]:
    """Who can use the cluster: whether it asks for a token, and the ports of Ray that are open to other hosts.

    Args:
        known: all nodes that answered.
    """
    for node in known:
        ports = "; ".join(f"{program} {', '.join(map(str, ports))}" for program, ports in node.open_ports.items())
        ports_text = f"Ray listens for other hosts: {ports}" if ports else "Ray listens for this host alone"
        if node.asks_for_token:
            yield CheckResult(f"access to {node.host}", "ok", f"with the token alone; {ports_text}")
        elif not ports:
            yield CheckResult(f"access to {node.host}", "ok", f"without a token; {ports_text}")
        else:
            yield CheckResult(
                f"access to {node.host}",
                "fault",
                f"it asks for no token, so whoever reaches its ports can run commands there; {ports_text}",
                "start Ray on every node with RAY_AUTH_MODE=token and one RAY_AUTH_TOKEN_PATH (docs/clusters.md)",
            )


def of_node(node: NodeFacts, known: Sequence[NodeFacts]) -> Iterator[CheckResult]:
    """Yield the results for a node: each problem, or what it has.

    Each version is compared with that of the first one that has it.

    Args:
        known: all nodes that answered.
    """
    problems = [*_versions_of(node, known), *_lacks_of(node)]
    yield from problems
    if not problems:
        installed = ", ".join(f"{library} {version}" for library, version in node.versions.items() if version)
        devices = f"{node.cpus:g} CPU" + (f", {node.gpus:g} GPU" if node.gpus else "")
        yield CheckResult(f"node {node.host}", "ok", f"{devices}; {installed}")


def _versions_of(node: NodeFacts, known: Sequence[NodeFacts]) -> Iterator[CheckResult]:
    """Yield the versions that differ from those of the other nodes, or do not fit the node's GPUs."""
    other = []
    for library, version in node.versions.items():
        first = next(each for each in known if library in each.versions)
        if version != first.versions[library]:
            other.append(f"{library} {version or 'none'} ({first.host} has {first.versions[library] or 'none'})")
    if other:
        hint = "install the same versions on every node"
        yield CheckResult(f"node {node.host}", "fault", f"other versions: {', '.join(other)}", hint)
    lacking = [library.upper() for library in ("cuda", "nccl") if node.versions.get(library, "") is None]
    if lacking:
        yield CheckResult(
            f"node {node.host}",
            "fault",
            f"{counted(int(node.gpus), 'GPU')}, and a torch that was built without {' and '.join(lacking)}",
            "install torch from PyPI there, whose builds for CUDA have it",
        )


def _lacks_of(node: NodeFacts) -> Iterator[CheckResult]:
    """A clock that is wrong, and what there is too little of."""
    name = f"node {node.host}"
    if abs(node.clock_s) > _MOST_APART_S:
        yield CheckResult(
            name,
            "warning",
            f"its clock is {abs(node.clock_s):.1f} s {'ahead' if node.clock_s > 0 else 'behind'}",
            "run chrony or systemd-timesyncd on every node",
        )
    if node.shared_memory_bytes < _LEAST_SHARED_BYTES:
        hint = "start its container with a larger --shm-size"
        yield CheckResult(name, "warning", f"{size(node.shared_memory_bytes)} of shared memory", hint)
    if node.disk_bytes < _LEAST_DISK_BYTES:
        hint = "free some space, or set RAY_TMPDIR there"
        yield CheckResult(name, "warning", f"{size(node.disk_bytes)} left on the disk of Ray", hint)
