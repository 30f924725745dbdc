"""The weights of a whole imported model for its class, with the readouts that a method trained for it.

A method with local losses trains readouts of its own and leaves the classifier of the model as it was. So the class
with the trained weights may be no classifier. Whether it is one is not guessed from shapes: the class and the route
compute the scores of the same samples, and these are compared.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from alray.config.user_code import named
from alray.core.errors import RequestError
from alray.inference.network import TrainedNetwork, whole_batch
from alray.inference.route_header import HEADER, RouteHeader
from alray.models.component import Component
from alray.models.encoder import Tensors, in_default_strides, run_block
from alray.models.imported.calls import scores_of
from alray.models.imported.given import ADDED
from alray.models.imported.part import Part
from alray.models.readout import Features, Readout
from alray.models.route import Route
from alray.models.several import OF_MODEL

_COMPARED = 16  # samples at most
_ROUNDING = 1e-4  # of the largest value: other kernels for the same sums in float32 differ by less


@dataclass(frozen=True)
class TrainedReadout:
    """What a method trained to give the scores of one depth.

    Attributes:
        names: how the names of its weights begin in the state dict.
        reads: `output of layer4`, or `input of fc`: it takes the output, or the input, of this module of the class.
            None: that of no module.
        channels_last: whether these are maps `[N, H, W, C]`, in place of `[N, C, H, W]`.
    """

    depth: int
    names: str
    reads: str | None
    channels_last: bool


@dataclass(frozen=True)
class WholeModel:
    """The state dict of a trained model.

    Attributes:
        model: of the class, on the CPU in float32, in evaluation mode.
        weights: those of the class, and others under names that begin with `alray.`.
        class_alone: whether the class with its weights alone gives the scores of the deepest route.
        untrained: names of the parameters of the class that the route does not use. Those of a classifier that was
            given the trained readout are not among them.
        readouts: shallowest first. None of them is the classifier that the model came with.
    """

    model: nn.Module
    weights: dict[str, torch.Tensor]
    class_alone: bool
    untrained: tuple[str, ...]
    readouts: tuple[TrainedReadout, ...]


@dataclass(frozen=True)
class _OfClass:
    """The model that `model.from` names, with its trained weights; the fields as of `WholeModel`.

    Attributes:
        model: in evaluation mode, on the CPU in float32.
        given: samples on which it was compared with the route, and of documents the mask.
    """

    model: nn.Module
    alone: bool
    untrained: tuple[str, ...]
    given: Tensors


def model_alone(network: TrainedNetwork) -> nn.Module:
    """The model that `model.from` names, in evaluation mode, on the CPU in float32, with weights by which it gives the
    scores of the deepest route.

    They are compared. Raises RequestError if the components are blocks, or if it gives other scores.
    """
    depth = network.depths[-1]
    found = _of_class(network, network.route_in_full(depth))
    if found is None:
        raise RequestError(
            "this network is made of alray's blocks, and no class computes it as a whole",
            key="model",
            hint="take network(), an ordinary module too",
        )
    if len(network.route(depth).boundaries):
        raise RequestError(
            "between the components of this network messages are compressed, and no class computes that",
            key="pipeline.messages",
            hint="take network(), which compresses too; or train with `where: stages`",
        )
    if not found.alone:
        last = _module(found.untrained[-1]) if found.untrained else None
        method = network.workload.spec.method.kind
        raise RequestError(
            f"`{network.workload.spec.model.source}` with the trained weights does not predict what the network "
            f"predicts: `{method}` has trained readouts of its own"
            + (f", and not the model's `{last}`" if last else ""),
            key="model",
            hint="take network(), which has these readouts; export('state_dict') writes the weights of both",
        )
    vars(found.model).pop(OF_MODEL, None)
    return found.model


def _of_class(network: TrainedNetwork, route: Route) -> _OfClass | None:
    """The model with the trained weights, and with the trained readout in place of its last layer where that gives the
    scores of the route. None: the components are blocks.

    Args:
        route: the deepest one, on the CPU in float32.
    """
    parts = [part for part in (*route.f, route.turn) if isinstance(part, Part)]
    model = network.workload.network.whole_model(parts)
    if model is None:
        return None
    batch = whole_batch(network.workload.data).inputs(torch.device("cpu"), torch.float32)
    given: Tensors = {name: batch[name][:_COMPARED] for name in ("s", "mask") if name in batch}
    untrained = _not_of(parts, model)
    # It is the first time that the model's forward pass is run, and not what was traced of it.
    with _of_user(network):
        alone = not len(route.boundaries) and _gives_scores_of(route, model, given)
        if not untrained and not len(route.boundaries):  # it may draw in evaluation, as a VAE
            alone = alone or not _equal(_called(model, given), _called(model, given))
        taken = None if alone or len(route.boundaries) else _take_readout(model, untrained, route, given)
    if taken is not None:
        untrained = [name for name in untrained if _module(name) != taken]
    return _OfClass(model, alone or taken is not None, tuple(untrained), given)


def _of_user(network: TrainedNetwork) -> AbstractContextManager[None]:
    source = network.workload.spec.model.source
    return named(f"`{source}`", "its forward pass as a whole", key="model.from")


def whole_model(network: TrainedNetwork, route: Route, header: RouteHeader) -> WholeModel:
    """The weights of the model that `model.from` names.

    Raises RequestError if the components are blocks, or if the class has weights whose names begin with `alray.`.

    Args:
        route: the deepest one, on the CPU in float32.
        header: of this route.
    """
    found = _of_class(network, route)
    if found is None:
        raise RequestError(
            "a state dict has the names of an imported model, and this network is made of alray's blocks",
            key="--format",
            hint="export safetensors, torch_export or onnx",
        )
    model = found.model
    if any(name.startswith(ADDED) for name in model.state_dict()):
        raise RequestError(
            f"the model has weights whose names begin with `{ADDED}`, as those that an export adds",
            key="--format",
            hint=f"rename its attribute `{ADDED.rstrip('.')}`, or export another format",
        )
    with _of_user(network):
        places = _places(model, list(route.f), found.given)
    turns = {depth: network.components[depth - 1].turn for depth in network.depths}
    readouts = tuple(
        TrainedReadout(depth, _names(depth), places[depth - 1], _moves_channels(turn))
        for depth, turn in turns.items()
        if turn is not None and not (depth == header.depth and isinstance(turn, Part))
    )
    of_class = model.state_dict()
    weights: Any = OrderedDict(of_class)
    # torch keeps the versions of modules there, and a model that loads a state dict passes over what it does not know.
    weights._metadata = dict(getattr(of_class, "_metadata", {}))
    weights._metadata[HEADER] = header.model_dump(mode="json") | {
        "class_alone": found.alone,
        "readouts": [asdict(readout) for readout in readouts],
    }
    for component in network.components:
        weights.update(_readout(component, in_class=component.index + 1 == header.depth))
    if header.targets is not None:
        weights[f"{ADDED}targets.mean"], weights[f"{ADDED}targets.std"] = header.targets.tensors()
    return WholeModel(model, weights, found.alone, found.untrained, readouts)


def _names(depth: int) -> str:
    return f"{ADDED}readout.{depth}."


def _readout(component: Component, *, in_class: bool) -> dict[str, torch.Tensor]:
    """The weights of the parts that inference needs besides the encoder, in float32 on the CPU, by part and name.

    Args:
        in_class: whether a part of the model is left out, because the class has its weights.
    """
    paths = {module: path for path, module in component.named_modules()}
    needed = {"turn": component.turn, "decoder": component.decoder, "passage": component.passage}
    return {
        f"{_names(component.index + 1)}{paths.get(module, role)}.{name}": _in_full(value)
        for role, module in needed.items()
        if module is not None and not (in_class and isinstance(module, Part))
        for name, value in module.state_dict().items()
    }


def _in_full(value: torch.Tensor) -> torch.Tensor:
    return value.to("cpu", torch.float32 if value.is_floating_point() else value.dtype, copy=True)


def _moves_channels(turn: nn.Module) -> bool:
    return any(isinstance(module, Features) and module.moves_channels for module in turn.modules())


def _not_of(parts: Sequence[nn.Module], model: nn.Module) -> list[str]:
    """The parameters of the model that are in none of its parts, under any of their names."""
    there = {name for part in parts for name in part.state_dict()}
    of_parts = {id(each) for name, each in model.named_parameters(remove_duplicate=False) if name in there}
    return [name for name, each in model.named_parameters() if id(each) not in of_parts]


def _module(parameter: str) -> str:
    return parameter.rpartition(".")[0]


@torch.no_grad()
def _gives_scores_of(route: Route, model: nn.Module, given: Tensors) -> bool:
    return _equal(_called(model, given), route(given["s"].clone(), given.get("mask")))


def _called(model: nn.Module, given: Tensors) -> torch.Tensor:
    """The scores that the model gives."""
    scores: torch.Tensor = scores_of(model, given["s"].clone(), given.get("mask"))
    return scores


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two results of the same computation in float32 agree."""
    if one.shape != other.shape:
        return False
    return bool((one - other).abs().max() <= _ROUNDING * other.abs().max())


@torch.no_grad()
def _take_readout(model: nn.Module, untrained: Sequence[str], route: Route, given: Tensors) -> str | None:
    """Give the model's last layer the weights of the readout, where it then computes the scores of the route.
    Returns its path, or None.

    Shapes decide nothing: a readout of tokens is a norm and a linear layer of the same shape as in the model. So only a
    readout that is one linear layer and all of the route after its encoders is tried. The scores are compared, and the
    model is left as it was if they differ.
    """
    layers = [module for module in route.turn.modules() if any(True for _ in module.parameters(recurse=False))]
    if not (isinstance(route.turn, Readout) and len(layers) == 1) or route.h or route.below or route.passages:
        return None
    trained = layers[0].state_dict()
    for path in dict.fromkeys(_module(name) for name in untrained):
        own = model.get_submodule(path)
        before = copy.deepcopy(own.state_dict())
        if isinstance(own, nn.Linear) and _shapes(before) == _shapes(trained):
            own.load_state_dict(trained)
            if _gives_scores_of(route, model, given):
                return path
            own.load_state_dict(before)
    return None


def _shapes(weights: dict[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in weights.items()}


@torch.no_grad()
def _places(model: nn.Module, parts: Sequence[nn.Module], given: Tensors) -> list[str | None]:
    """Where the model computes what each of its parts gives: the output or the input of a module. None: nowhere.

    They are found by value, in a run of the model, so what is named does hold what the part gives. Of several modules
    that do, the outermost is named: a block, not its last layer. A module that is called several times is not.
    """
    wanted, along = [], given
    for part in parts:
        along = in_default_strides(run_block(part, {**along, "s": along["s"].clone()}))
        wanted.append(along["s"])
    ends: dict[str, list[list[str]]] = {end: [[] for _ in wanted] for end in ("output", "input")}
    calls: dict[str, int] = {}

    def look(name: str, value: Any, found: list[list[str]]) -> None:
        for number, each in enumerate(wanted):
            if isinstance(value, torch.Tensor) and _equal(value, each):
                found[number].append(name)

    def before(name: str, given: tuple[Any, ...]) -> None:
        calls[name] = calls.get(name, 0) + 1
        if given:
            look(name, given[0], ends["input"])

    handles = []
    for name, module in model.named_modules():
        if name:
            handles.append(module.register_forward_pre_hook(lambda _, given, name=name: before(name, given)))
            handles.append(
                module.register_forward_hook(lambda _, __, given, name=name: look(name, given, ends["output"]))
            )
    try:
        _called(model, given)
    finally:
        for handle in handles:
            handle.remove()

    def outermost(number: int) -> str | None:
        once = [(end, name) for end, found in ends.items() for name in found[number] if calls[name] == 1]
        if not once:
            return None
        end, name = min(once, key=lambda each: each[1].count("."))
        return f"{end} of {name}"

    return [outermost(number) for number in range(len(wanted))]
