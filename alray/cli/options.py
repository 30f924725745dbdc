"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="A spec file.", show_default=False)]

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="key=value", help="Values in place of the spec's, such as optimizer.lr=3e-4.", show_default=False
    ),
]

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]

AllowCode = Annotated[
    bool, typer.Option("--allow-code", help="Load `python:` code from outside the spec's folder too.")
]

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, all else on standard error.")
]
