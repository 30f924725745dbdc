"""The arguments and options that several commands have: each is declared here once, with its help.

Those that Python's `alray.run` has too are in `alray.runtime.options.Requested`, under the same names.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from alray.config.sections.section import Section

SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="A spec file.", show_default=False)]


def gives_value(word: str) -> bool:
    """Whether a word is `key=value`, and not the path of what is there."""
    from alray.config.sections.section import is_too_long

    return "=" in word and (is_too_long(word) or not Path(word).exists())


def _keys(context: typer.Context, incomplete: str) -> list[str]:
    """For the shell: the overrides that begin like this."""
    from alray.config.sections.spec import Spec
    from alray.config.study.section import Study

    return keys_like(incomplete, Study if context.info_name == "study" else Spec)


def keys_like(incomplete: str, root: type[Section]) -> list[str]:
    """The overrides of a spec or a study that begin like this, up to their `=`. A section that is the only one is gone
    into.

    Where a section has several kinds, the keys of all of them are given.
    """
    around, dot, _ = incomplete.rpartition(".")
    if "=" in incomplete:
        return []
    found = [key for key in _keys_in(around + dot, root) if key.startswith(incomplete)]
    if len(found) == 1 and found[0].endswith("."):
        return _keys_in(found[0], root)
    return found


def _keys_in(around: str, root: type[Section]) -> list[str]:
    from alray.config.sections.grammar import spot_of_path

    path = tuple(around.removesuffix(".").split(".")) if around else ()
    here = spot_of_path({}, path, root)
    sections = [here.section] if here.section is not None else list(here.members.values())
    names = dict.fromkeys(name for section in sections for name in section.model_fields)
    found = []
    for name in names:
        below = spot_of_path({}, (*path, name), root)
        found.append(f"{around}{name}{'.' if below.section is not None or below.members else '='}")
    return found


Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="key=value",
        help="Values that replace those of the spec, such as optimizer.lr=3e-4.",
        autocompletion=_keys,
        show_default=False,
    ),
]

RunDir = Annotated[
    str, typer.Argument(metavar="RUN", help="A run folder, or its URL on object storage.", show_default=False)
]
"""Typer cannot read a `Location`: each command makes one of this text."""

Inline = Annotated[
    bool, typer.Option("--inline", help="Run in this process, without Ray: the same plan, the same bits.")
]

Output = Annotated[
    str | None,
    typer.Option(
        metavar="DIR", help="The folder of the new run, new or empty, or a URL: s3://...  [default: runs/<name>-<time>]"
    ),
]

Address = Annotated[
    str | None,
    typer.Option(metavar="A", help="The address of a Ray cluster to connect to.  [default: start Ray on this machine]"),
]

Profile = Annotated[
    str | None,
    typer.Option(
        metavar="STEPS",
        help="Mini-batches to trace with torch.profiler, such as 20-24,40, into profile/ in the run folder.",
        show_default=False,
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
        "--on",
        metavar="MACHINES",
        help="Plan for machines that are not here: 8xA100, 2x8xA100 for two nodes of eight, 8xA100,4xV100. Links "
        "that the spec says are of its own machines: say theirs by --link and --within. "
        "[default: the spec's machines, or this machine]",
        show_default=False,
    ),
]

Link = Annotated[
    list[str] | None,
    typer.Option(
        "--link",
        metavar="LINK",
        help="The network card of each of these nodes, or with one node what connects its devices: 25GB/s, or "
        "'100Mbit/s, 20ms'. A map takes several, and without machines links between any two devices, or host.",
        show_default=False,
    ),
]

Within = Annotated[
    str | None,
    typer.Option(
        "--within",
        metavar="LINK",
        help="What connects two devices of a node.  [default: as published of the device]",
        show_default=False,
    ),
]

CostsFile = Annotated[
    Path | None,
    typer.Option(
        "--costs",
        metavar="FILE",
        help="Take the costs of the components from this file: of `alray probe`, or a public chain.",
        show_default=False,
    ),
]

Depth = Annotated[
    int | None,
    typer.Option(metavar="L", help="The depth of the route to use.  [default: the deepest]", show_default=False),
]

BestWeights = Annotated[bool, typer.Option("--best", help="Use the weights with the best validation accuracy.")]

Step = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Use the checkpoint after N mini-batches.  [default: the last checkpoint]",
        show_default=False,
    ),
]

DataLocations = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="KEY=PATH",
        help="Where files of the data lie on this machine, such as train=photos. May be given again.",
        show_default=False,
    ),
]

DashboardAddress = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar="RAY_API_SERVER_ADDRESS",
        help="The dashboard of the cluster, such as http://head:8265.",
        show_default=False,
    ),
]

Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on standard output and everything else on standard error."),
]
