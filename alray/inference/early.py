"""What a request on a run is refused for by its files alone, before torch is imported, which takes seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from alray.config.sections.section import did_you_mean, nearest
from alray.core.counting import counted
from alray.core.errors import DataError, RequestError
from alray.core.run_folder.store import FORM, require_run_dir
from alray.core.storage.json_file import read_json
from alray.core.storage.location import Location
from alray.inference.chosen_weights import RequestedWeights, find_weights

Format = Literal["safetensors", "torch_export", "onnx", "state_dict", "pretrained"]
"""What a route is exported as."""
FORMATS: tuple[Format, ...] = get_args(Format)


def format_of(word: str) -> Format:
    """The format of this name. Raises RequestError if there is none."""
    if word not in FORMATS:
        hint = did_you_mean(nearest(word, FORMATS), f"choose one of {', '.join(FORMATS)}")
        raise RequestError(f"`{word}` is not a format", key="--format", hint=hint)
    return word


def require_request(
    run_dir: Location,
    requested: RequestedWeights,
    depth: int | None = None,
    *,
    inputs: Sequence[str] = (),
) -> None:
    """Raise CheckpointError if this is no run folder, or has no checkpoint; RequestError if it has none as asked, or
    fewer components than `depth`; DataError for inputs that are no files, if the network takes no text.
    """
    run_dir = require_run_dir(run_dir)
    manifest, _ = find_weights(run_dir, requested)
    components = sum(manifest["partition"])
    if depth is not None and not 1 <= depth <= components:
        hint = f"this run has {counted(components, 'component')}, so a depth is from 1 to {components}"
        raise RequestError(f"there is no route of depth {depth}", key="--depth", hint=hint)
    form = read_json(run_dir / FORM, dict[str, Any]).get("input", {}) if inputs else {}
    if form.get("picture") or form.get("rows"):
        for given in inputs:
            if not Path(given).exists():
                raise DataError("the file does not exist", file=given, hint="give the path of a file")
