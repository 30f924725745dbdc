"""The links between the nodes of a cluster, measured by a process on each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from alray.planning.prediction.costs import Link
from alray.planning.prediction.stage_devices import Ends, MessageWays
from alray.runtime.cluster.nodes import ClusterNode, living_nodes, on_node, reason_of
from alray.runtime.probe.link import answer, ask, listen

_LINK_S = 60.0


class Listener:
    """Waits on its node for a process of another node."""

    def __init__(self) -> None:
        self._socket = listen(ray.util.get_node_ip_address())

    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def answer(self) -> float:
        return answer(self._socket)


def links_of(
    nodes: Sequence[str], stages: int, note: Callable[[str], None], *, ring: bool, down: bool
) -> tuple[tuple[Link | None, ...], Link | None]:
    """The links from each stage to the next one, and with `ring` from the last one to the first; () on one node.
    And the slowest link between the replicas of a stage.

    None where both ends are on one node, or where the link cannot be measured.

    Args:
        nodes: the id of each stage's node, replica by replica. The stages of a node share its network card, and the
            slowest replica counts.
        down: whether gradients go down.
    """
    if len(set(nodes)) == 1:
        return (), None
    ways = MessageWays(tuple(nodes), stages, ring, down)
    # A link is measured as a whole. Its sender's card is taken for what is shared.
    return ways.links({ends: {(0, ends[0]): link} for ends, link in measure_links(ways.ends, note).items()})


def measure_links(pairs: Iterable[Ends], note: Callable[[str], None]) -> dict[Ends, Link]:
    """The links between these pairs of nodes. Pairs without a common node are measured at the same time.

    A link that cannot be measured is left out, and gives a line to `note`. Links of nodes that have gone are left out.
    """
    known = {node.id: node for node in living_nodes()}
    wanted = sorted({(min(pair), max(pair)) for pair in pairs if len(set(pair)) == 2})
    links: dict[Ends, Link] = {}
    while wanted:
        at_once: list[Ends] = []
        for pair in wanted:
            if not any(node in other for node in pair for other in at_once):
                at_once.append(pair)
        wanted = [pair for pair in wanted if pair not in at_once]
        begun = [(pair, _begin(*pair, known)) for pair in at_once if known.keys() >= set(pair)]
        for (low, high), (listener, asking, answering) in begun:
            try:
                (latency_s, buffered_s, down), up = ray.get([asking, answering], timeout=_LINK_S)
            except RayError as error:
                note(
                    f"the link between {known[low].host} and {known[high].host} could not be measured, and the plan "
                    f"leaves it out: {reason_of(error)}"
                )
            else:
                held = buffered_s / up  # bytes
                links[low, high], links[high, low] = Link(latency_s, up, down, held), Link(latency_s, down, up, held)
            ray.kill(listener)
    return links


def _begin(low: str, high: str, known: dict[str, ClusterNode]) -> tuple[Any, Any, Any]:
    """Start to measure; return the listener on `high`, and Ray's references to what `ask` and `answer` return."""
    listener = ray.remote(Listener).options(**on_node(high)).remote()
    asks = ray.remote(ask).options(max_retries=0, **on_node(low))
    port = listener.port.remote()
    return listener, asks.remote(known[high].address, port), listener.answer.remote()
