"""`alray prove`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from alray.cli.options import AllowCode, Json, Overrides
from alray.cli.run import watched_on
from alray.cli.terminal import terminal

_NOISE = {"source": "synthetic", "shape": [3, 64, 64], "classes": 1000, "samples": 96, "batch_size": 8}
"""What a model is trained on that has no spec."""


def prove(
    of: Annotated[
        str,
        typer.Argument(
            metavar="SPEC|MODEL",
            help="A spec, or a model as `model.from` names it, such as torchvision:resnet18, on noise.",
            show_default=False,
        ),
    ],
    overrides: Overrides = None,
    *,
    mini_batches: Annotated[int, typer.Option("--mini-batches", help="Train so many.", min=2)] = 6,
    stages: Annotated[
        int | None, typer.Option("--stages", help="Largest number of stages.  [default: 3]", show_default=False, min=1)
    ] = None,
    inline: Annotated[
        bool, typer.Option("--inline/--no-inline", help="Run in this process, or each stage as a process of Ray.")
    ] = True,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Train a few mini-batches in every way that fits, and compare the weights.

    The ways: a plain loop of torch, one stage, every schedule on several stages, and a stop with a resume. Exits with 0
    if every way trains the weights of its reference to the bit, with 1 if one does not.
    """
    with terminal(as_json=json) as streams, watched_on(streams) as (observer, interrupts):
        observer.doing("loading torch")
        from alray.api.objects import taken
        from alray.api.proof import prove_taken
        from alray.runtime.options import Options

        found = prove_taken(
            taken(_spec_of(of), overrides or []),
            mini_batches=mini_batches,
            stages=stages,
            options=Options(inline=inline, alone=True, allow_code=allow_code, pages=False),
            observer=observer,
            interrupts=interrupts,
        )
        if streams.as_json:
            streams.answer(found.as_json())
        else:
            streams.fields(found.rows())
    raise typer.Exit(0 if found.same else 1)


def _spec_of(of: str) -> Path | dict[str, Any]:
    if ":" not in of or Path(of).exists():
        return Path(of)
    run = {"epochs": 1}
    return {"name": "proof", "method": "backpropagation", "model": {"from": of}, "data": _NOISE, "run": run}
