"""Connect to the cluster that a run uses: start a Ray for it, or attach to one that is there."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from alray.core.errors import RequestError
from alray.runtime.cluster.nodes import Bundle, living_nodes
from alray.runtime.cluster.room import require_room
from alray.runtime.local_ray.ray_init import import_ray, init_ray, rays_environment, read_authentication_again
from alray.runtime.local_ray.start import local_ray

_LISTENING_S = 5.0


@dataclass(frozen=True)
class Connection:
    """A connection to a cluster."""

    own: bool  # whether the cluster was started here, for this connection
    warnings: tuple[str, ...]  # for the user, a sentence each


@contextmanager
def connect(
    address: str | None, bundles: Sequence[Bundle], labels: Mapping[str, str] | None = None
) -> Iterator[Connection]:
    """Connect to the cluster at `address` or RAY_ADDRESS; without either, start one on this machine for the bundles.

    A cluster that was started here ends with the block. One that this process is connected to already is taken.
    Raises RequestError if no cluster answers at the address, or if this process is connected to another one, and
    PlanError if the cluster can never hold the bundles.
    """
    import_ray()
    import ray

    from alray.core.compat import ray_worker

    require_reachable(address)
    address = address_to_attach_to(address)
    connected = ray.is_initialized()
    own = not connected and address is None
    with ExitStack() as stack:
        if not connected:  # tasks of a Ray that the program starts later print again
            stack.callback(setattr, ray_worker, "_worker_logs_enabled", ray_worker._worker_logs_enabled)
        warnings: tuple[str, ...] = ()
        if own:
            warnings = stack.enter_context(local_ray(bundles))
        elif address is not None and not connected:
            stack.enter_context(rays_environment())
            stack.enter_context(_attached(address))
        # Ray prints on standard output that a process died. alray reports that itself, and prints only answers there.
        ray_worker._worker_logs_enabled = False
        require_room(bundles, [node.resources for node in living_nodes(labels)], labels)
        yield Connection(own=own, warnings=warnings)


def address_to_attach_to(address: str | None) -> str | None:
    """This address, or RAY_ADDRESS; None where a Ray is started, also for Ray's word `local`: the one that Ray would
    start takes connections from everywhere."""
    address = address or os.environ.get("RAY_ADDRESS") or None
    return None if address == "local" else address


def require_reachable(address: str | None) -> None:
    """Raise RequestError, within seconds, if `connect` cannot attach to the cluster that it is to attach to.

    Ray itself would try for a minute.
    """
    import ray

    if ray.is_initialized():
        _require_connected_to(address)
    elif (found := address_to_attach_to(address)) is not None:
        _require_listener(found)


def _require_connected_to(address: str | None) -> None:
    """Raise RequestError if the cluster that this process is connected to is not the one at this `host:port`."""
    import ray

    if address is None or ":" not in address:  # nothing, or a word that Ray knows
        return
    connected = ray.get_runtime_context().gcs_address
    if address != connected:
        raise RequestError(
            f"this process is connected to the Ray at `{connected}`, not to `{address}`",
            key="--address",
            hint="leave the address out, or call `ray.shutdown()` before",
        )


@contextmanager
def _attached(address: str) -> Iterator[None]:
    """Attach to the cluster at this address, until the block ends."""
    import ray

    read_authentication_again()
    _require_token(address)
    try:
        init_ray(address=address)
    except (ConnectionError, ValueError, RuntimeError) as error:
        ray.shutdown()
        raise _no_cluster(address, " ".join(str(error).split())) from error
    try:
        yield
    finally:
        ray.shutdown()


def _no_cluster(address: str, reason: str) -> RequestError:
    """The error for a reason of Ray, which has the versions of the cluster and of this process where they differ."""
    return RequestError(
        f"no Ray cluster takes this process at `{address}`: {reason}",
        key="--address",
        hint="start it, correct the address, send the run there with `alray submit`, or leave --address out to run on "
        "this machine alone",
    )


def _require_listener(address: str) -> None:
    """Raise RequestError at once if nothing listens at `host:port`."""
    host, _, port = address.rpartition(":")
    if address.startswith(("http://", "https://")):
        raise RequestError(
            f"`{address}` is the address of a dashboard",
            key="--address",
            hint="send the run there with `alray submit`, or give the address of the head itself, host:port, from a "
            "machine of the cluster",
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
