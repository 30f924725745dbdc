"""Whether a cluster can hold what is to be sent to it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from alray.config.sections.spec import Spec
from alray.core.errors import RequestError
from alray.runtime.cluster.room import require_room
from alray.runtime.runner.engines import stage_bundles
from alray.submit.dashboard import Dashboard

_BEGINNING_S = 20.0
"""So long a head may take from its first answer until it lists its node."""
_ASK_AGAIN_S = 0.5


def require_room_for(specs: Iterable[Spec], dashboard: Dashboard) -> None:
    """Raise PlanError if the nodes could not hold the stages of one of these specs, each alone on the cluster.

    Raises RequestError if the cluster has no node, even after a while: a head that has just started lists itself late.
    """
    nodes = dashboard.nodes()
    until = time.monotonic() + _BEGINNING_S
    while not nodes:
        if time.monotonic() > until:
            raise RequestError(
                "the cluster has no node yet",
                key="--address",
                hint="wait until `ray status` shows its nodes, then submit again",
            )
        time.sleep(_ASK_AGAIN_S)
        nodes = dashboard.nodes()
    for spec in specs:
        labels = spec.resources.labels
        found = [node.resources for node in nodes if labels.items() <= node.labels.items()]
        require_room(stage_bundles(spec, spec.pipeline.stages, spec.replicas.count), found, labels)
