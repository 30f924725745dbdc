"""The Ray cluster that a run uses: one started for it, or one that alray attaches to."""

from __future__ import annotations

import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from alray.core.errors import PlanError, RequestError, StageError
from alray.core.storage.location import Location
from alray.runtime.graph.own_ray import (
    Bundle,
    end_own_ray,
    import_ray,
    init_ray,
    own_ray,
    rays_environment,
    read_authentication_again,
)

if TYPE_CHECKING:
    from ray.exceptions import RayError


@dataclass(frozen=True)
class Connection:
    """A connection to a cluster."""

    own: bool  # whether the cluster was started here, for this connection
    warnings: tuple[str, ...]  # for the user, a sentence each


@dataclass(frozen=True)
class ClusterNode:
    """A node of the cluster that answers."""

    id: str
    host: str
    address: str
    resources: Bundle


_LISTENING_S = 5.0
_ANSWERING_S = 2.0
_UNTOLD_S = 5.0
"""Seconds without room before a run prints a note: what ran before it may still be ending."""
_OWN_ROOM_S = 120.0
"""Seconds that a Ray that alray started may take to free what ended, and to start processes."""
_VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+)")


@contextmanager
def connect(
    address: str | None, bundles: Sequence[Bundle], labels: Mapping[str, str] | None = None
) -> Iterator[Connection]:
    """Connect to the cluster at `address` or RAY_ADDRESS; without either, start one on this machine for the bundles.

    A cluster that was started here ends with the block.
    Raises RequestError if no cluster answers at the address, and PlanError if the cluster can never hold the bundles.
    """
    import_ray()
    import ray

    from alray.core.compat import ray_worker

    address = address or os.environ.get("RAY_ADDRESS") or None
    with ExitStack() as stack:
        own = not ray.is_initialized() and address is None
        warnings: tuple[str, ...] = ()
        if own:
            warnings = stack.enter_context(own_ray(bundles))
        elif address is not None and not ray.is_initialized():
            stack.enter_context(rays_environment())
            stack.enter_context(_attached(address))
        # Ray prints on standard output that a process died. alray reports that itself, and prints only answers there.
        ray_worker._worker_logs_enabled = False
        require_room(bundles, _resources(labels), labels)
        yield Connection(own=own, warnings=warnings)


@contextmanager
def _attached(address: str) -> Iterator[None]:
    """Attach to the cluster at this address, until the block ends."""
    import ray

    read_authentication_again()
    _require_listener(address)
    _require_token(address)
    try:
        init_ray(address=address)
    except (ConnectionError, ValueError, RuntimeError) as error:
        ray.shutdown()
        raise _not_attached(address, str(error)) from error
    try:
        yield
    finally:
        ray.shutdown()


def _not_attached(address: str, message: str) -> RequestError:
    """The error for a message of Ray, which has the versions of the cluster and of this process where they differ."""
    versions = _VERSIONS.findall(message)
    if len(versions) != 2:
        return _no_cluster(address, message.splitlines()[0])
    (ray_there, python_there), (ray_here, python_here) = versions
    return RequestError(
        f"the cluster at `{address}` runs Ray {ray_there} on Python {python_there}, and this environment has "
        f"Ray {ray_here} on Python {python_here}",
        key="--address",
        hint="run alray in an environment with the versions of the cluster, or send the run there with `alray submit`",
    )


def _no_cluster(address: str, reason: str) -> RequestError:
    return RequestError(
        f"no Ray cluster answers at `{address}`: {reason}",
        key="--address",
        hint="start it, correct the address, or leave --address out to run on this machine alone",
    )


def _require_listener(address: str) -> None:
    """Raise RequestError at once if nothing listens at `host:port`. Ray itself would try for a minute."""
    host, _, port = address.rpartition(":")
    if address.startswith(("http://", "https://")):
        raise RequestError(
            f"`{address}` is the address of a dashboard",
            key="--address",
            hint="send the run there with `alray submit`, or give the head's address, host:port, from a machine of "
            "the cluster",
        )
    if "://" in address:
        raise RequestError(
            f"`{address}` is an address of Ray Client, which cannot carry a run",
            key="--address",
            hint="give the head's address, host:port, from a machine of the cluster",
        )
    if not host or not port.isdigit():
        return  # a word that Ray knows, such as `auto`
    try:
        socket.create_connection((host, int(port)), timeout=_LISTENING_S).close()
    except OSError as error:
        raise _no_cluster(address, str(error.strerror or error)) from error


def _require_token(address: str) -> None:
    """Raise RequestError at once if the cluster at `host:port` refuses the token. Ray itself would try for 20 s."""
    from ray.exceptions import AuthenticationError, RpcError

    from alray.core.compat import GcsClient

    if ":" not in address:
        return
    try:
        GcsClient(address=address)
    except AuthenticationError as error:
        raise RequestError(
            f"the cluster at `{address}` refuses this token",
            key="--address",
            hint="set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to the file with the token of this cluster",
        ) from error
    except RpcError as error:
        raise _no_cluster(address, str(error)) from error


def has_room(bundles: Sequence[Bundle], labels: Mapping[str, str] | None = None) -> bool:
    """Whether the nodes that are alive now could hold all bundles if they were empty."""
    try:
        require_room(bundles, _resources(labels), labels)
    except PlanError:
        return False
    return True


def wait_for_room(
    look: Callable[[], bool],
    bundles: Sequence[Bundle],
    labels: Mapping[str, str] | None,
    note: Callable[[str], None],
    *,
    whose: str,
) -> None:
    """Wait until the cluster has room for the bundles, as long as others use it.

    Args:
        look: takes a moment and returns whether there is room.
        note: is called once with a line for the user if that takes longer.
        whose: what the bundles are for, a plural for messages.

    Raises:
        StageError: if nodes were lost and the rest can never hold the bundles, or if a Ray that alray started, which
            nobody else uses, has no room for long: it is then ended, so that the run starts another one.
    """
    tell_s, end_s = time.monotonic() + _UNTOLD_S, time.monotonic() + _OWN_ROOM_S
    while not look():
        if time.monotonic() > end_s and end_own_ray():
            raise StageError(f"Ray on this machine has no room for {len(bundles)} {whose}, and nobody else uses it")
        if not has_room(bundles, labels):
            raise StageError(f"the cluster has lost nodes: {len(bundles)} {whose} have no room on it")
        if time.monotonic() > tell_s:
            note(f"others use the cluster: waiting for room for {len(bundles)} {whose}")
            tell_s = math.inf


def num_nodes(labels: Mapping[str, str] | None = None) -> int:
    """Number of nodes alive that have these labels."""
    return len(living_nodes(labels))


def living_nodes(labels: Mapping[str, str] | None = None) -> list[ClusterNode]:
    """The nodes that are alive and have these labels, in the order of their hosts.

    Ray takes seconds to miss a node that is gone. So each node's port is tried, unless there is
    one only.
    """
    import ray

    alive = [
        node
        for node in ray.nodes()
        if node["Alive"] and all(node["Labels"].get(key) == value for key, value in (labels or {}).items())
    ]
    if len(alive) > 1:
        with ThreadPoolExecutor(max_workers=len(alive)) as threads:
            alive = [node for node, answers in zip(alive, threads.map(_answers, alive), strict=True) if answers]
    found = [
        ClusterNode(node["NodeID"], node["NodeManagerHostname"], node["NodeManagerAddress"], node["Resources"])
        for node in alive
    ]
    return sorted(found, key=lambda node: (node.host, node.id))


def _answers(node: dict[str, Any]) -> bool:
    """Whether Ray's process on this node takes connections."""
    try:
        socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), timeout=_ANSWERING_S).close()
    except OSError:
        return False
    return True


def reason_of(error: RayError | str) -> str:
    """The line of a message of Ray that says why: the last one, except where a process took too much memory."""
    from ray.exceptions import OutOfMemoryError

    lines = str(error).strip().splitlines() or ["no message"]
    return lines[0] if isinstance(error, OutOfMemoryError) else lines[-1]


def _resources(labels: Mapping[str, str] | None) -> list[Bundle]:
    return [node.resources for node in living_nodes(labels)]


def holding_nodes(bundles: Sequence[Bundle], labels: Mapping[str, str] | None = None) -> list[ClusterNode]:
    """The nodes with these labels that could hold one of the bundles if they were empty."""
    return [node for node in living_nodes(labels) if any(_fits(bundle, node.resources) for bundle in bundles)]


def _fits(bundle: Bundle, free: Bundle) -> bool:
    return all(free.get(name, 0.0) >= amount for name, amount in bundle.items())


def not_shared(whose: str, host: str, run_dir: Location) -> PlanError:
    """The error for a stage on a node that does not see the run folder."""
    return PlanError(
        f"{whose} is on {host}, which does not see the run folder {run_dir}",
        hint="give an --output on storage that all nodes share, or on object storage, such as s3://bucket/run",
    )


def require_room(
    bundles: Sequence[Bundle], nodes: Sequence[dict[str, float]], labels: Mapping[str, str] | None = None
) -> None:
    """Raise PlanError if the nodes could not hold all bundles even if they were empty. A bundle lies on one node.

    Bundles are placed largest first, each on the first node with room. For equal bundles this is exact.
    """
    free = [dict(node) for node in nodes]
    for number, bundle in enumerate(sorted(bundles, key=lambda bundle: sorted(bundle.items()), reverse=True)):
        for node in free:
            if _fits(bundle, node):
                for name, amount in bundle.items():
                    node[name] = node.get(name, 0.0) - amount
                break
        else:
            requested = " and ".join(f"{amount:g} {name}" for name, amount in bundle.items())
            totals = ", ".join(f"{sum(node.get(name, 0.0) for node in nodes):g} {name}" for name in bundle)
            raise PlanError(
                f"{len(bundles)} stages of {requested} each can never be placed: the cluster has {totals} "
                f"on {len(nodes)} node{'s' if len(nodes) != 1 else ''}{_with(labels)}, room for {number}",
                key="resources.per_stage",
                hint="lower pipeline.stages or resources.per_stage, or attach to a larger cluster",
            )


def _with(labels: Mapping[str, str] | None) -> str:
    return f" labelled {', '.join(f'{key}={value}' for key, value in labels.items())}" if labels else ""
