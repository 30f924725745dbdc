"""The requests of `alray evaluate`, `predict` and `export`, on a run folder or an exported route."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from alray.records import DepthAccuracy
from alray.trained.export import ENDINGS, Exported, Format, export_route
from alray.trained.exported import ExportedRoute
from alray.trained.network import TrainedNetwork
from alray.trained.prediction import ClassPrediction
from alray.trained.route_costs import RouteCost, measure_routes


@dataclass(frozen=True)
class Evaluated:
    """Accuracy and cost of routes, shallowest first, at the checkpoint after `step` mini-batches."""

    step: int
    accuracies: list[DepthAccuracy]
    costs: list[RouteCost]


def evaluate_run(
    run_dir: Path, *, depth: int | None, allow_code: bool, splits: tuple[str, ...] = ("validation", "test")
) -> Evaluated:
    """Evaluate the last checkpoint of a run by the route of this depth, or by every route for None."""
    network = TrainedNetwork(run_dir, allow_code=allow_code)
    depths = network.depths if depth is None else (network.require_depth(depth),)
    accuracies = [accuracy for accuracy in network.evaluate(splits) if accuracy.depth in depths]
    return Evaluated(network.step, accuracies, measure_routes(network, depths))


def predict_run(run: Path, inputs: list[str], *, depth: int | None, allow_code: bool) -> list[ClassPrediction]:
    """Classify each input (see `TrainedNetwork.predict`) by the route of this depth (None: the deepest).

    run: a run folder, or the safetensors file of an exported route.
    """
    if run.is_file():
        return ExportedRoute(run, allow_code=allow_code).predict(inputs, depth)
    return TrainedNetwork(run, allow_code=allow_code).predict(inputs, depth)


def export_run(run_dir: Path, *, kind: Format, depth: int | None, output: Path | None, allow_code: bool) -> Exported:
    """Write the inference route of this depth (None: the deepest) to a file.

    output: the file; None: `export/route-<depth>` in the run folder, with the format's ending.
    """
    network = TrainedNetwork(run_dir, allow_code=allow_code)
    depth = network.require_depth(depth)
    file = output or run_dir / "export" / f"route-{depth}{ENDINGS[kind]}"
    return export_route(network, depth, kind, file)
