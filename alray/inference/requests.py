"""What `alray evaluate`, `predict` and `export` work on: the network of a run folder, or an exported route."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from alray.core.errors import RequestError
from alray.core.metric import Metric
from alray.core.run_folder.records import DepthScores
from alray.core.storage.location import Location
from alray.inference.chosen_weights import LAST, RequestedWeights, Weights
from alray.inference.data_locations import OPTION
from alray.inference.exported import ExportedRoute
from alray.inference.network import TrainedNetwork


@dataclass(frozen=True)
class Evaluated:
    """The task's metric of routes, shallowest first, with these weights.

    Attributes:
        notes: what the metric says nothing of, in sentences.
    """

    weights: Weights
    metric: Metric
    scores: list[DepthScores]
    notes: list[str]


def evaluate(network: TrainedNetwork, depth: int | None = None) -> Evaluated:
    """Evaluate a network by the route of this depth, or by every route for None."""
    depths = network.depths if depth is None else (network.require_depth(depth),)
    notes: list[str] = []
    scores = [each for each in network.evaluate(("validation", "test"), notes.append) if each.depth in depths]
    metric = network.workload.spec.task.measures
    return Evaluated(network.weights, metric, scores, notes)


def open_network(
    source: Location, *, allow_code: bool, requested: RequestedWeights = LAST, data: Sequence[str] = ()
) -> TrainedNetwork | ExportedRoute:
    """The trained network of a run folder, not compiled, or the exported route of a safetensors file.

    Raises RequestError if weights or data are named for a file, which has one set of weights and needs no data.

    Args:
        requested, data: as for `TrainedNetwork`.
    """
    if not (isinstance(source, Path) and source.is_file()):
        return TrainedNetwork(
            source, allow_code=allow_code, requested=requested, data=data, compiled=False, without_data=True
        )
    if data:
        raise RequestError(
            "this file needs no data: it knows how to read its inputs",
            file=str(source),
            key=OPTION,
            hint="leave it out",
        )
    if requested != LAST:
        raise RequestError(
            "this file holds the weights it was exported with",
            file=str(source),
            hint="give the run folder to choose a checkpoint, or leave out --best and --step",
        )
    return ExportedRoute(source, allow_code=allow_code)
