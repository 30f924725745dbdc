"""Whether a cluster can hold what is to be sent to it."""

from __future__ import annotations

from collections.abc import Iterable

from alray.graph.cluster import require_room
from alray.runner.engines import stage_bundles
from alray.spec.models import Spec
from alray.submit.dashboard import Dashboard


def require_room_for(specs: Iterable[Spec], dashboard: Dashboard) -> None:
    """Raise PlanError if the nodes could not hold the stages of one of these specs, each alone on the cluster."""
    nodes = dashboard.nodes()
    for spec in specs:
        labels = spec.resources.labels
        found = [node.resources for node in nodes if labels.items() <= node.labels.items()]
        require_room(stage_bundles(spec, spec.pipeline.stages, spec.replicas.count), found, labels)
