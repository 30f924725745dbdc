"""`alray evaluate` and `alray predict`: what a trained network says."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from alray.cli.options import AllowCode, Json, RunFolder
from alray.cli.terminal import terminal
from alray.errors import RequestError

_ALL = "all"


def evaluate(
    run_dir: RunFolder,
    *,
    depth: Annotated[str, typer.Option(metavar="L|all", help="Depth of the route; 1 is the first component.")] = _ALL,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Measure a trained network: accuracy, time and parameters of its routes.

    That of the run's last checkpoint, on validation and test, for one route or every one.
    """
    with terminal(as_json=json, spec=run_dir / "spec.yaml") as streams:
        wanted = _depth(depth)
        from alray.records import DepthAccuracy
        from alray.report.text import accuracy, seconds
        from alray.trained.requests import evaluate_run

        found = evaluate_run(run_dir, depth=wanted, allow_code=allow_code)
        if json:
            per_depth = [entry.model_dump(mode="json") for entry in found.accuracies]
            routes = [asdict(cost) for cost in found.costs]
            streams.answer({"step": found.step, "accuracy_per_depth": per_depth, "routes": routes})
            return
        streams.say(f"checkpoint after {found.step:,} mini-batches")
        streams.say("depth  validation    test  time per sample    parameters")
        of_depth = {entry.depth: entry for entry in found.accuracies}
        for cost in found.costs:
            entry = of_depth.get(cost.depth, DepthAccuracy(depth=cost.depth))
            shown = f"{accuracy(entry.validation):>10}  {accuracy(entry.test):>6}"
            streams.say(f"{cost.depth:5d}  {shown}  {seconds(cost.time_per_sample_s):>15}  {cost.parameters:>12,}")
        streams.say(f"times are of mini-batches of {found.costs[0].batch_size} samples")


def predict(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="A run folder, or a file `alray export --format safetensors` wrote.",
            show_default=False,
        ),
    ],
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Image files. Of a network for text: files of one document each, or lines of text in quotes (whatever "
            "is not a file is taken as text, but for one word that ends in .txt).",
            show_default=False,
        ),
    ],
    *,
    depth: Annotated[
        int | None, typer.Option(metavar="L", help="Depth of the route.  [default: the deepest]", show_default=False)
    ] = None,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Classify pictures or text by a trained network.

    That of the run's last checkpoint, or the one exported.
    """
    with terminal(as_json=json, spec=None if run.is_file() else run / "spec.yaml") as streams:
        from alray.trained.requests import predict_run

        predictions = predict_run(run, inputs, depth=depth, allow_code=allow_code)
        if json:
            streams.answer({"predictions": [asdict(prediction) for prediction in predictions]})
            return
        for said in predictions:
            streams.say(f"{said.input}: {said.label} ({said.score:.4f})")


def _depth(text: str) -> int | None:
    if text == _ALL:
        return None
    if not text.isdecimal():
        raise RequestError(f"`{text}` is not a depth", key="--depth", mend="write a number, such as 2, or `all`")
    return int(text)
