"""The links between the nodes of a cluster, measured by a process on each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from alray.planning.prediction.costs import Link
from alray.runtime.cluster.nodes import ClusterNode, living_nodes, on_node, reason_of
from alray.runtime.probe.link import answer, ask, listen

_LINK_S = 60.0

Ends = tuple[str, str]
"""The ids of two nodes; what goes from the first to the second goes up."""


class Listener:
    """Waits on its node for a process of another node."""

    def __init__(self) -> None:
        self._socket = listen(ray.util.get_node_ip_address())

    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def answer(self) -> float:
        return answer(self._socket)


def links_of(
    nodes: Sequence[str], stages: int, note: Callable[[str], None], *, ring: bool
) -> tuple[tuple[Link | None, ...], Link | None]:
    """The links from each stage to the next one, and with `ring` from the last one to the first; () on one node.
    And the slowest link between the replicas of a stage.

    None where both ends are on one node, or where the link cannot be measured.

    Args:
        nodes: the id of each stage's node, replica by replica. The stages of a node share its network card, and the
            slowest replica counts.
    """
    if len(set(nodes)) == 1:
        return (), None
    last = stages if ring else stages - 1
    ways = [
        [(first + stage, first + (stage + 1) % stages) for first in range(0, len(nodes), stages)]
        for stage in range(last)
    ]
    # Averages go round the replicas of each stage, those of all stages at about the same time.
    rounds = [(stage, (stage + stages) % len(nodes)) for stage in range(len(nodes))]
    between = [pair for pairs in ways for pair in pairs]
    links = measure_links({_ends(nodes, pair) for pair in (*between, *rounds)}, note)
    sharing = card_users(nodes, [*between, *(pair[::-1] for pair in between)])
    slowest = [_slowest(links, sharing, [_ends(nodes, pair) for pair in pairs]) for pairs in ways]
    replica_link = _slowest(links, card_users(nodes, rounds), [_ends(nodes, pair) for pair in rounds])
    return tuple([*slowest, *[None] * (stages - len(slowest))] if any(slowest) else ()), replica_link


def card_users(nodes: Sequence[str], pairs: Iterable[tuple[int, int]]) -> Counter[str]:
    """How many stages of each node send to other nodes. A stage counts once: its messages go one after another.

    Args:
        nodes: of each stage.
        pairs: a stage that sends, and the one it sends to.
    """
    return Counter(nodes[stage] for stage in {sender for sender, goal in pairs if nodes[sender] != nodes[goal]})


def _ends(nodes: Sequence[str], pair: tuple[int, int]) -> Ends:
    return nodes[pair[0]], nodes[pair[1]]


def _slowest(links: dict[Ends, Link], users: Counter[str], pairs: Sequence[Ends]) -> Link | None:
    """The slowest of these links in all respects, where so many stages of each node share its card."""
    found = [(links[low, high], users[low] or 1, users[high] or 1) for low, high in pairs if (low, high) in links]
    if not found:
        return None
    return Link(
        latency_s=max(link.latency_s for link, _, _ in found),
        up_s_per_byte=max(link.up_s_per_byte * below for link, below, _ in found),
        down_s_per_byte=max(link.down_s_per_byte * above for link, _, above in found),
        buffer_bytes=min(link.buffer_bytes for link, _, _ in found),
    )


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
    asks = ray.remote(_ask).options(max_retries=0, **on_node(low))
    port = listener.port.remote()
    return listener, asks.remote(known[high].address, port), listener.answer.remote()


def _ask(address: str, port: int) -> tuple[float, float, float]:
    return ask(address, port)
