"""The requests of `alray evaluate`, `predict` and `export`, on a run folder or an exported route."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from alray.core.errors import RequestError
from alray.core.metric import Metric
from alray.core.run_folder.records import DepthScores
from alray.core.storage.location import Location, require_no_links
from alray.inference.data_locations import OPTION
from alray.inference.export import ENDINGS, Exported, Format, export_route
from alray.inference.exported import ExportedRoute
from alray.inference.generation import Generated, generate
from alray.inference.network import TrainedNetwork
from alray.inference.route_costs import RouteCost, measure_routes
from alray.inference.weights import LAST, RequestedWeights, Weights
from alray.models.task import Prediction


@dataclass(frozen=True)
class Evaluated:
    """The task's metric and cost of routes, shallowest first, with these weights."""

    weights: Weights
    metric: Metric
    scores: list[DepthScores]
    costs: list[RouteCost]


def evaluate_run(
    run_dir: Location,
    *,
    depth: int | None,
    allow_code: bool,
    requested: RequestedWeights = LAST,
    data: Sequence[str] = (),
    splits: tuple[str, ...] = ("validation", "test"),
) -> Evaluated:
    """Evaluate a checkpoint of a run by the route of this depth, or by every route for None.

    Args:
        data: as for `TrainedNetwork`; so in the other requests.
    """
    network = TrainedNetwork(run_dir, allow_code=allow_code, requested=requested, data=data)
    depths = network.depths if depth is None else (network.require_depth(depth),)
    scores = [each for each in network.evaluate(splits) if each.depth in depths]
    metric = network.workload.spec.task.measures
    return Evaluated(network.weights, metric, scores, measure_routes(network, depths))


def predict_run(
    run: Location,
    inputs: list[str],
    *,
    depth: int | None,
    allow_code: bool,
    requested: RequestedWeights = LAST,
    data: Sequence[str] = (),
) -> tuple[list[Prediction], Weights]:
    """Predict each input (see `TrainedNetwork.predict`) by the route of this depth (None: the deepest).

    Args:
        run: a run folder, or the safetensors file of an exported route, which has one set of weights.
    """
    network, weights = _opened(run, allow_code=allow_code, requested=requested, data=data)
    return network.predict(inputs, depth), weights


def _opened(
    run: Location, *, allow_code: bool, requested: RequestedWeights, data: Sequence[str]
) -> tuple[TrainedNetwork | ExportedRoute, Weights]:
    """The trained network of a run folder or the exported route of a file, and which weights it has."""
    if not (isinstance(run, Path) and run.is_file()):
        network = TrainedNetwork(run, allow_code=allow_code, requested=requested, data=data, compiled=False)
        return network, network.weights
    if data:
        raise RequestError(
            "this file needs no data: it knows how to read its inputs", file=str(run), key=OPTION, hint="leave it out"
        )
    if requested != LAST:
        raise RequestError(
            "this file holds the weights it was exported with",
            file=str(run),
            hint="give the run folder to choose a checkpoint, or leave out --best and --step",
        )
    route = ExportedRoute(run, allow_code=allow_code)
    return route, Weights(route.header.step, "exported")


def generate_by_run(
    run: Location,
    prompt: str,
    *,
    tokens: int,
    temperature: float,
    depth: int | None,
    seed: int,
    threshold: float | None,
    allow_code: bool,
    requested: RequestedWeights = LAST,
    data: Sequence[str] = (),
) -> tuple[Generated, Weights]:
    """Continue a prompt (see `generate`) with a run folder, or with an exported route."""
    network, weights = _opened(run, allow_code=allow_code, requested=requested, data=data)
    made = generate(
        network, prompt, tokens=tokens, temperature=temperature, depth=depth, seed=seed, threshold=threshold
    )
    return made, weights


def export_run(
    run_dir: Location,
    *,
    kind: Format,
    depth: int | None,
    output: Location | None,
    allow_code: bool,
    requested: RequestedWeights = LAST,
    data: Sequence[str] = (),
) -> tuple[Exported, Weights]:
    """Write the inference route of this depth (None: the deepest) to a file.

    Args:
        output: the file; None: `export/route-<depth>` in the run folder, with the format's ending.
    """
    network = TrainedNetwork(run_dir, allow_code=allow_code, requested=requested, data=data, compiled=False)
    depth = network.require_depth(depth)
    if output is None:
        require_no_links(run_dir)
    file = run_dir / "export" / f"route-{depth}{ENDINGS[kind]}" if output is None else output
    if not isinstance(file, Path):
        raise RequestError(
            f"a route is written on a disk, and {file} is on object storage",
            key="--output",
            hint="name a file on a disk, by --output",
        )
    return export_route(network, depth, kind, file), network.weights
