"""The arguments and options that several commands have: each is declared here once, with its help.

Those that Python's `alray.run` has too are in `alray.runtime.options.Requested`, under the same names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def gives_value(word: str) -> bool:
    """Whether a word is `key=value`, and not the path of what is there."""
    from alray.config.sections.section import is_too_long

    return "=" in word and (is_too_long(word) or not Path(word).exists())


SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="A spec file.")]

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="key=value", help="Values that replace those of the spec, such as optimizer.lr=3e-4."),
]

RunDir = Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or its URL on object storage.")]
"""Typer cannot read a `Location`: each command makes one of this text."""

Inline = Annotated[
    bool, typer.Option("--inline", help="Run in this process, without Ray: the same plan, the same bits.")
]

Output = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="The folder of the new run, new or empty, or a URL: s3://...",
        show_default="runs/<name>-<time>",
    ),
]

Address = Annotated[
    str | None,
    typer.Option(
        metavar="A",
        help="The address of a Ray cluster to connect to.",
        show_default="start Ray on this machine",
    ),
]

Profile = Annotated[
    str | None,
    typer.Option(
        metavar="STEPS",
        help="Mini-batches to trace with torch.profiler, such as 20-24,40, into profile/ in the run folder.",
    ),
]

AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code", help="Also load `python:` code from outside the folder of the spec, and of others' run folders."
    ),
]

Probe = Annotated[
    bool, typer.Option("--probe", help="Measure the components on this machine instead of estimating their costs.")
]

On = Annotated[
    str | None,
    typer.Option(
        metavar="MACHINES",
        help="Plan for machines that are not here: 8xA100, 2x8xA100 for two nodes of eight, 8xA100,4xV100. Links "
        "that the spec says are of its own machines: say theirs by --link and --within.",
        show_default="the spec's machines, or this machine",
    ),
]

Link = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LINK",
        help="The network card of each of these nodes, or with one node what connects its devices: 25GB/s, or "
        "'100Mbit/s, 20ms'. A map takes several, and without machines links between any two devices, or host.",
    ),
]

Within = Annotated[
    str | None,
    typer.Option(
        metavar="LINK", help="What connects two devices of a node.", show_default="as published of the device"
    ),
]

CostsFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Take the costs of the components from this file: of `alray probe`, or a public chain.",
    ),
]

Depth = Annotated[
    int | None,
    typer.Option(metavar="L", help="The depth of the route to use.", show_default="the deepest"),
]

BestWeights = Annotated[bool, typer.Option("--best", help="Use the weights with the best validation accuracy.")]

Step = Annotated[
    int | None,
    typer.Option(metavar="N", help="Use the checkpoint after N mini-batches.", show_default="the last checkpoint"),
]

DataLocations = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=PATH",
        help="Where files of the data lie on this machine, such as train=photos. May be given again.",
    ),
]

DashboardAddress = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar="RAY_API_SERVER_ADDRESS",
        help="The dashboard of the cluster, such as http://head:8265.",
    ),
]

Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on standard output and everything else on standard error."),
]
