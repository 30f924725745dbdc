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
    """Measure the accuracy of a trained network.

    That of the run's last checkpoint, on validation and test, for one route or every one.
    """
    with terminal(as_json=json, spec=run_dir / "spec.yaml") as streams:
        wanted = _depth(depth)
        from alray.orchestrate import evaluate_run
        from alray.report.text import accuracy

        step, accuracies = evaluate_run(run_dir, depth=wanted, allow_code=allow_code)
        if json:
            per_depth = [entry.model_dump(mode="json") for entry in accuracies]
            streams.answer({"step": step, "accuracy_per_depth": per_depth})
            return
        streams.say(f"checkpoint after {step:,} mini-batches")
        streams.say("depth  validation    test")
        for entry in accuracies:
            streams.say(f"{entry.depth:5d}  {accuracy(entry.validation):>10}  {accuracy(entry.test):>6}")


def predict(
    run_dir: RunFolder,
    inputs: Annotated[list[Path], typer.Argument(metavar="INPUT", help="Image files.", show_default=False)],
    *,
    depth: Annotated[
        int | None, typer.Option(metavar="L", help="Depth of the route.  [default: the deepest]", show_default=False)
    ] = None,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Classify files by a trained network.

    That of the run's last checkpoint.
    """
    with terminal(as_json=json, spec=run_dir / "spec.yaml") as streams:
        from alray.orchestrate import predict_run

        predictions = predict_run(run_dir, inputs, depth=depth, allow_code=allow_code)
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
