"""Where the channels of a traced model's values are: `[N, C, H, W]`, or last, as in Swin: `[N, H, W, C]`."""

from __future__ import annotations

import torch
from torch import fx, nn
from torch.nn import functional

from alray.core.compat import BatchNorm, ConvNd
from alray.models.imported.trace import Trace

_LAST = (nn.Linear, nn.LayerNorm, functional.linear, functional.layer_norm)
_FIRST = (ConvNd, BatchNorm, nn.GroupNorm, functional.conv2d)
_PERMUTED = {(0, 2, 3, 1): True, (0, 3, 1, 2): False}


def channels_last(trace: Trace, model: nn.Module) -> frozenset[str]:
    """The nodes whose values have their channels last, by name, if they are maps: as the last operation that has an
    axis for channels says. The input has them first."""
    last: dict[fx.Node, bool] = {}
    for node in trace.graph.nodes:
        operation = _operation(node, model)
        if operation in _LAST or isinstance(operation, _classes(_LAST)):
            last[node] = True
        elif operation in _FIRST or isinstance(operation, _classes(_FIRST)):
            last[node] = False
        elif (permuted := _permutation(node)) in _PERMUTED:
            last[node] = _PERMUTED[permuted]
        else:
            last[node] = next((last[each] for each in node.all_input_nodes if not _is_fixed(each, trace)), False)
    return frozenset(name for node, name in trace.names.items() if last[node])


def _is_fixed(node: fx.Node, trace: Trace) -> bool:
    return node.op == "get_attr" or node in trace.fixed


def _operation(node: fx.Node, model: nn.Module) -> object:
    return model.get_submodule(str(node.target)) if node.op == "call_module" else node.target


def _classes(of: tuple[object, ...]) -> tuple[type, ...]:
    return tuple(each for each in of if isinstance(each, type))


def _permutation(node: fx.Node) -> tuple[object, ...]:
    """The order of axes that a node gives its input; () if it gives none."""
    if node.target != "permute" and node.target is not torch.permute:
        return ()
    dims = node.args[1:] or (node.kwargs.get("dims", ()),)
    return tuple(dims[0]) if isinstance(dims[0], list | tuple) else dims
