"""`alray export`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from alray.cli.options import AllowCode, Json, RunFolder
from alray.cli.terminal import shown, terminal
from alray.errors import RequestError


def export(
    run_dir: RunFolder,
    *,
    format: Annotated[
        str,
        typer.Option(
            metavar="safetensors|torch_export|onnx",
            help="Weights for `alray predict`, a graph for torch.export.load, or one for ONNX runtimes.",
            show_default=False,
        ),
    ],
    depth: Annotated[
        int | None, typer.Option(metavar="L", help="Depth of the route.  [default: the deepest]", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The file to write.  [default: export/route-<depth> in the run folder, with the format's ending]",
            show_default=False,
        ),
    ] = None,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Write a trained network's inference route alone to a file.

    That of the run's last checkpoint, in float32: what predicts, without what was only needed to train.
    """
    with terminal(as_json=json, spec=run_dir / "spec.yaml") as streams:
        from alray.report.text import size
        from alray.trained.export import FORMATS
        from alray.trained.requests import export_run

        if format not in FORMATS:
            raise RequestError(f"`{format}` is not a format", key="--format", mend=f"one of {', '.join(FORMATS)}")
        written = export_run(run_dir, kind=format, depth=depth, output=output, allow_code=allow_code)
        if json:
            streams.answer(asdict(written))
            return
        inputs = ", ".join(f"{name} {_sizes(sizes)}" for name, sizes in written.inputs.items())
        streams.say(shown(written.file))
        streams.say(f"route of depth {written.depth}: {written.parameters:,} parameters, {size(written.bytes)}")
        streams.say(f"takes {inputs}")


def _sizes(sizes: list[int | str]) -> str:
    return f"[{', '.join(map(str, sizes))}]"
