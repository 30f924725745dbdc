"""Export the inference route of a trained network: weights for alray, a graph for other runtimes, or the weights of a
whole model for its class."""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from torch.export import Dim, ExportedProgram

from alray.config.objects import names_of
from alray.config.sections.section import listed
from alray.core.errors import FAULTS_OF_USER_CODE, RequestError
from alray.core.storage import disk
from alray.core.storage.location import Location, require_no_links
from alray.data.form import TargetForm
from alray.inference.early import Format
from alray.inference.network import TrainedNetwork
from alray.inference.route_header import HEADER, RouteHeader, header_of
from alray.inference.whole_model import TrainedReadout, WholeModel, whole_model
from alray.models.component import trainable
from alray.models.imported.hugging_face import save
from alray.models.imported.part import Part, joined
from alray.models.route import Route

_ENDINGS: dict[Format, str] = {
    "safetensors": ".safetensors",
    "torch_export": ".pt2",
    "onnx": ".onnx",
    "state_dict": ".pt",
    "pretrained": "-pretrained",
}
_HEADER_FILE = f"{HEADER}.json"
"""In a folder, the file with the header of the route."""
_BATCH = "batch"  # the name of the dimension whose size is the number of samples
_EXAMPLES = 2  # samples to trace a graph with; with one sample, torch would fix the number of samples to one


@dataclass(frozen=True)
class Exported:
    """A route that was written to a file, or to a folder.

    Attributes:
        file: the file or the folder.
        parameters: number of trainable scalars.
        inputs: the shape of each input. A letter in a shape is a size that is free at run time (N samples, T words of a
            text).
        class_alone: of a state dict, in any format, whether the model's class gives the scores of the route by itself;
            None for another format.
        untrained: of a state dict, names of the parameters of the class that the route does not use.
        readouts: of a state dict, those that the method trained in place of the model's classifier.
    """

    file: str
    format: Format
    depth: int
    parameters: int
    bytes: int
    inputs: dict[str, list[int | str]]
    class_alone: bool | None = None
    untrained: tuple[str, ...] = ()
    readouts: tuple[TrainedReadout, ...] = ()


def export_route(network: TrainedNetwork, depth: int | None, kind: Format, output: Location | None = None) -> Exported:
    """Write the route of this depth (None: the deepest) in float32. What an export wrote there before is replaced.

    safetensors holds the weights, and in its metadata what `alray predict` needs. torch_export and onnx hold a graph,
    and the same metadata. The graph goes from prepared samples `[N, ...]`, and for text a mask `[N, T]`, to class
    scores `[N, classes]`, of a regression to predictions in the units of its targets, of a language model to
    `[N, T, tokens]`. state_dict holds the weights of the whole model that `model.from` names, under its own names, and
    the readouts of all depths that the method trained in place of its classifier, under names that begin with `alray.`.
    pretrained is a folder with a model of transformers, without readouts, which `from_pretrained` of its class loads.
    Raises RequestError if the route cannot be traced, a library is not installed, or the file cannot be written.

    Args:
        output: the file or the folder; None: `export/route-<depth>` in the run folder, with the format's ending.
    """
    depth = network.require_depth(depth)
    if output is None:
        require_no_links(network.run_dir)
    file = network.run_dir / "export" / f"route-{depth}{_ENDINGS[kind]}" if output is None else output
    if not isinstance(file, Path):
        raise RequestError(
            f"a route is written on a disk, and {file} is on object storage",
            key="--output",
            hint="name a file on a disk, by --output",
        )
    header = header_of(network, depth)
    if kind == "safetensors":
        _require_no_objects(header)
    route = network.route_in_full(depth)
    whole = _whole_model(network, route, header, kind) if kind in _WRITE_WHOLE else None
    # torch checks the ending of the name, so it stays.
    unfinished = file.with_name(f".partial-{file.name}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            if whole is not None:
                _WRITE_WHOLE[kind](whole, unfinished)
            else:
                _WRITE[kind](route, header, unfinished)
            if unfinished.is_dir():
                _remove_exported(file)
            disk.publish_written(unfinished, file)
        finally:
            if unfinished.is_dir():
                disk.remove_folder(unfinished)
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise RequestError(
            f"cannot be written: {error.strerror or error}",
            file=str(file),
            hint="name a file you can write, by --output",
        ) from error
    return Exported(
        file=str(file),
        format=kind,
        depth=depth,
        parameters=trainable(route),
        bytes=sum(each.stat().st_size for each in (file.iterdir() if file.is_dir() else (file,))),
        inputs=_inputs(route, header, kind),
        class_alone=None if whole is None else whole.class_alone,
        untrained=() if whole is None else whole.untrained,
        readouts=() if whole is None else whole.readouts,
    )


def _require_no_objects(header: RouteHeader) -> None:
    """Raise RequestError if the route has objects that a Python program gave: nothing could open its file."""
    names = names_of(header.whole_spec())
    if names:
        raise RequestError(
            f"a Python program gave {listed([f'object:{name}' for name in names], 'and')}, which no file has, so "
            "nothing could open these weights",
            key="--format",
            hint="export torch_export or state_dict; or in Python, torch.save(run.network().state_dict(), FILE)",
        )


def _whole_model(network: TrainedNetwork, route: Route, header: RouteHeader, kind: Format) -> WholeModel:
    if header.depth != network.depths[-1]:
        raise RequestError(
            f"{kind} holds the whole model, not a route below its full depth",
            key="--depth",
            hint="leave it out, or export another format",
        )
    return whole_model(network, route, header)


def _write_safetensors(route: Route, header: RouteHeader, file: Path) -> None:
    weights = {name: value.clone(memory_format=torch.contiguous_format) for name, value in route.state_dict().items()}
    save_file(weights, file, metadata={"format": "pt", HEADER: header.model_dump_json()})


def _write_torch_export(route: Route, header: RouteHeader, file: Path) -> None:
    # torch itself opens no file whose name is not UTF-8.
    with file.open("wb") as opened:
        torch.export.save(_traced(route, header), opened, extra_files={f"{HEADER}.json": header.model_dump_json()})


def _write_onnx(route: Route, header: RouteHeader, file: Path) -> None:
    for library in ("onnx", "onnxscript"):
        _require(library)
    free = _dynamic_sizes(route, header)
    # ONNX takes the names of dimensions from here; those of the graph are numbers.
    named = {name: {axis: size.__name__ for axis, size in sizes.items()} for name, sizes in free.items()}
    traced = _traced(route, header)
    with _explained(), _without_warnings():
        program = torch.onnx.export(
            traced,
            dynamo=True,
            input_names=list(free),
            output_names=["scores"],
            dynamic_shapes=named,
            verbose=False,
        )
    assert program is not None
    program.model.metadata_props[HEADER] = header.model_dump_json()
    program.save(file)


_WRITE: dict[Format, Callable[[Route, RouteHeader, Path], None]] = {
    "safetensors": _write_safetensors,
    "torch_export": _write_torch_export,
    "onnx": _write_onnx,
}


def _write_state_dict(whole: WholeModel, file: Path) -> None:
    torch.save(whole.weights, file)


def _write_pretrained(whole: WholeModel, folder: Path) -> None:
    save(whole.model, folder)
    weights: Any = whole.weights
    (folder / _HEADER_FILE).write_text(json.dumps(weights._metadata[HEADER]), encoding="utf-8")


def _remove_exported(folder: Path) -> None:
    """Delete a folder that an export wrote. Raises RequestError for a folder with anything else in it."""
    if not folder.is_dir():
        return
    if any(folder.iterdir()) and not (folder / _HEADER_FILE).is_file():
        raise RequestError(
            "there is a folder that no export wrote, and it is not empty",
            file=str(folder),
            hint="name a new folder, by --output",
        )
    disk.remove_folder(folder)


_WRITE_WHOLE: dict[Format, Callable[[WholeModel, Path], None]] = {
    "state_dict": _write_state_dict,
    "pretrained": _write_pretrained,
}
"""Formats of the weights of a whole model."""


def _require(library: str) -> None:
    try:
        importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise RequestError(
            f"ONNX needs the library `{error.name}`, which is not installed",
            key="--format",
            hint="pip install 'alray[onnx]'",
        ) from error


def _traced(route: Route, header: RouteHeader) -> ExportedProgram:
    """The route as a graph for any number of samples. For text also for any number of words up to `max_tokens`, or of
    tokens up to the context."""
    samples = torch.zeros((_EXAMPLES, *header.sample), dtype=header.sample.dtype)
    example = (samples,) if header.sample.words is None else (samples, torch.ones_like(samples, dtype=torch.bool))
    route = _in_one_part(route)
    whole = route if header.targets is None else _InUnits(route, header.targets)
    with _explained(), _without_warnings(), torch.no_grad():
        return torch.export.export(whole, example, dynamic_shapes=_dynamic_sizes(route, header))


def _in_one_part(route: Route) -> Route:
    """The route with the parts of an imported model in one: what comes from another part is no tensor that torch
    traces."""
    parts = [part for part in (*route.f, route.turn) if isinstance(part, Part)]
    if not parts or len(route.boundaries):
        return route
    turn = _Scores() if isinstance(route.turn, Part) else route.turn
    return Route([joined(parts)], turn, list(route.h), writes_input=route.writes_input)


class _Scores(nn.Module):
    """In place of the classifier of a model: what the model gives."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return s


class _InUnits(nn.Module):
    """A route whose predictions are in the units of the targets: whoever runs a graph need not know the header."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, route: Route, targets: TargetForm) -> None:
        super().__init__()
        self.route = route
        mean, std = targets.tensors()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.eval()

    def forward(self, samples: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        scores: torch.Tensor = self.route(samples, mask)
        return scores * self.std + self.mean


def _dynamic_sizes(route: Route, header: RouteHeader) -> dict[str, dict[int, Any]]:
    """The sizes of each input that are free at run time, by dimension."""
    free: dict[int, Any] = {0: Dim(_BATCH)}
    if header.sample.tokens is not None and header.sample[0] > 1:
        free[1] = Dim("T", max=header.sample[0])
    if header.sample.words is None:
        return {"samples": free}
    # torch.export supports recurrent layers of one length only. Texts are padded to it, and the mask marks their words.
    recurrent = any(isinstance(module, nn.RNNBase) for module in route.modules())
    if not recurrent and header.sample[0] > 1:
        free[1] = Dim("T", max=header.sample[0])
    return {"samples": free, "mask": free}


def _inputs(route: Route, header: RouteHeader, kind: Format) -> dict[str, list[int | str]]:
    """The shape of each input. A safetensors route runs in alray, which takes texts of any length."""
    shape: list[int | str] = [_BATCH, *header.sample]
    if header.sample.tokens is not None:
        return {"samples": [_BATCH, "T"]}
    if header.sample.words is None:
        return {"samples": shape}
    if kind == "safetensors" or 1 in _dynamic_sizes(route, header)["samples"]:
        shape[1] = "T"
    return {"samples": shape, "mask": shape}


@contextmanager
def _explained() -> Iterator[None]:
    """Turn an error of torch's tracing into one that says what to do."""
    try:
        yield
    except FAULTS_OF_USER_CODE as error:
        raise RequestError(
            f"torch cannot trace this route: {type(error).__name__}: {error}",
            key="--format",
            hint="export it as safetensors, or change the block so that it does not depend on the number of samples or "
            "words",
        ) from error


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hide torch's warnings about its future changes: a user of alray cannot act on them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
