"""Cut points of a traced model: where one tensor alone is needed later, or several that backpropagation packs
as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import torch
from torch import fx, nn

from alray.config.sections.section import listed, nearest
from alray.core.errors import SpecError
from alray.models.imported.ends import PartEnds
from alray.models.imported.trace import Trace, with_device
from alray.models.shape import Shape
from alray.planning.prediction.partition import partition_auto

SAMPLES = 3
"""Samples with which shapes are found: a tensor of a batch has so many rows."""
_MOST_NAMED = 6
"""Cut points that a message lists."""


def alive_behind(trace: Trace) -> dict[str, tuple[fx.Node, ...]]:
    """Behind each node whose value is needed later: the nodes whose values are, itself the last, by its name.

    Parameters, and what is made of buffers alone, do not count: the part that needs them has them. The node that
    returns the result is not among them.
    """
    last_use = {each: number for number, node in enumerate(trace.graph.nodes) for each in node.all_input_nodes}
    alive: dict[fx.Node, None] = {}
    found: dict[str, tuple[fx.Node, ...]] = {}
    for number, node in enumerate(trace.graph.nodes):
        alive = {each: None for each in alive if last_use[each] > number}
        if node.op != "get_attr" and node not in trace.fixed and last_use.get(node, -1) > number:
            alive[node] = None
            if node.op != "placeholder" and node is not trace.output:
                found[trace.names[node]] = tuple(alive)
    return found


def uses_again(trace: Trace, model: nn.Module) -> set[str]:
    """The nodes after which a parameter or buffer is used that was used before, by name.

    Two parts would have copies of it, each of which would be trained by itself.
    """
    used = [state_of(node, trace, model) for node in trace.nodes]
    last_use = {each: number for number, state in enumerate(used) for each in state}
    found: set[str] = set()
    furthest = -1
    for number, (node, state) in enumerate(zip(trace.nodes, used, strict=True)):
        furthest = max([furthest, *(last_use[each] for each in state)])
        if furthest > number:
            found.add(trace.names[node])
    return found


def tied_layers(trace: Trace, model: nn.Module) -> tuple[str, str] | None:
    """The names of two layers that are apart by the most others of all that use the same weights, in order; None: no
    two do."""
    used = [state_of(node, trace, model) for node in trace.nodes]
    first = {each: number for number, state in reversed(list(enumerate(used))) for each in state}
    apart = [(number - first[each], first[each], number) for number, state in enumerate(used) for each in state]
    distance, one, other = max(apart, default=(0, 0, 0))
    return (trace.names[trace.nodes[one]], trace.names[trace.nodes[other]]) if distance else None


def tied_parameters(model: nn.Module) -> str:
    """A sentence on two names of one parameter; "" if there are none."""
    first: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        other = first.setdefault(id(parameter), name)
        if other != name:
            return f"`{other}` and `{name}` are one parameter (tied weights), which one component must hold"
    return ""


def state_of(node: fx.Node, trace: Trace, model: nn.Module) -> set[int]:
    """The parameters and buffers that a node uses, by identity. Those that stand still do not count."""
    if node.op == "call_module":
        part = model.get_submodule(str(node.target))
        state = {id(each) for each in (*part.parameters(), *part.buffers())}
    else:
        state = set()
    for each in (node, *node.all_input_nodes):
        if each.op == "get_attr" and each not in trace.fixed:
            owner, _, name = str(each.target).rpartition(".")
            state.add(id(getattr(model.get_submodule(owner), name)))
    return state


def weighted(trace: Trace, model: nn.Module) -> list[fx.Node]:
    """The nodes with their own weights: layers with a matrix or a kernel, and submodules that are one node."""
    found = []
    for node in trace.nodes:
        if node.op == "call_module":
            part = model.get_submodule(str(node.target))
            if any(parameter.ndim > 1 for parameter in part.parameters()):
                found.append(node)
    return found


def natural(
    groups: Sequence[PartEnds], trace: Trace, cut_points: Set[str], with_weights: Set[str], model: nn.Module
) -> list[str]:
    """Cut points after the natural units of a model: the members of its sequences, and its layers with weights outside
    of them.

    Args:
        groups: the shortest runs with weights.
        cut_points: names of the nodes after which it can be cut.
        with_weights: those of layers with weights. A member of a `Sequential` or `ModuleList` that has submodules is
            one unit, such as a residual block.
    """
    units = list(_units(model, "", in_sequence=False))
    names = list(trace.names.values())
    matrices = {name for node, name in trace.names.items() if node.op == "get_attr" and _is_matrix(node, model)}
    chosen = []
    for group in groups[:-1]:
        assert group.until is not None
        at = names.index(group.until)
        following = next(name for name in names[at + 1 :] if name in with_weights)
        unit = _unit_of(following, units)
        # A unit may begin with functions of weights, such as Swin's attention: then go back to the end of the last one.
        used_weights = False
        for name in reversed(names[: at + 1]):
            if name in cut_points and (unit is None or _unit_of(name, units) != unit):
                if used_weights or name == group.until:
                    chosen.append(name)
                break
            used_weights = used_weights or name in matrices
            if name in with_weights:
                break
    return chosen


def _is_matrix(node: fx.Node, model: nn.Module) -> bool:
    owner, _, name = str(node.target).rpartition(".")
    value = getattr(model.get_submodule(owner), name)
    return isinstance(value, nn.Parameter) and value.ndim > 1


def _unit_of(name: str, units: Sequence[str]) -> str | None:
    return next((unit for unit in units if name == unit or name.startswith(f"{unit}.")), None)


def _units(module: nn.Module, path: str, *, in_sequence: bool) -> Iterable[str]:
    """Paths of the units in a module."""
    is_sequence = isinstance(module, nn.ModuleList) or type(module).forward is nn.Sequential.forward
    composed = any(any(True for _ in child.children()) for child in module.children())
    if path and in_sequence and any(True for _ in module.children()) and not (is_sequence and composed):
        yield path
        return
    for name, child in module.named_children():
        yield from _units(child, f"{path}.{name}" if path else name, in_sequence=is_sequence)


def costs(trace: Trace, model: nn.Module, sample: Shape) -> tuple[dict[fx.Node, float], dict[fx.Node, torch.Tensor]]:
    """The work of each node on a few samples, floating-point operations, and its value on the meta device.

    What is not a multiplication counts one operation for each value that it gives.
    """
    from torch.utils.flop_counter import FlopCounterMode  # imports torch's compiler, which no stage needs

    work: dict[fx.Node, float] = {}
    values: dict[fx.Node, torch.Tensor] = {}

    class Counting(fx.Interpreter):
        def fetch_args_kwargs_from_env(self, n: fx.Node) -> Any:
            return with_device(super().fetch_args_kwargs_from_env(n), torch.device("meta"))

        def run_node(self, n: fx.Node) -> object:
            with FlopCounterMode(display=False) as counter:
                value = super().run_node(n)
            if isinstance(value, torch.Tensor) and n.op not in ("placeholder", "output"):
                values[n] = value
                work[n] = float(counter.get_total_flops()) + value.numel()
            return value

    with torch.device("meta"):  # for what a submodule makes that is one node
        Counting(model, graph=trace.graph).run(torch.zeros((SAMPLES, *sample), dtype=sample.dtype))
    return work, values


def even(groups: Sequence[PartEnds], of_group: Mapping[PartEnds, float], count: int) -> list[str]:
    """The cut points that divide the model into `count` parts of about equal work."""
    sizes = partition_auto([of_group[group] for group in groups], count)
    ends = [sum(sizes[: index + 1]) - 1 for index in range(count - 1)]
    return [str(groups[end].until) for end in ends]


def cut_point_of(name: str, trace: Trace, cut_points: Sequence[str]) -> str:
    """The cut point that a user's name stands for: of a node, or of a module, after its last node.

    Args:
        cut_points: where the model can be cut, in order.

    Raises:
        SpecError: where it cannot be cut there.
    """
    names = list(trace.names.values())
    within = [each for each in names if each == name or each.startswith(f"{name}.")]
    if not within:
        meant = nearest(name, {*cut_points, *(each.rpartition(".")[0] for each in cut_points)})
        raise SpecError(
            f"the model has no layer `{name}`",
            key="model.cut",
            hint=f"did you mean `{meant}`?" if meant else f"it can be cut after {_some(cut_points)}",
        )
    last = within[-1]
    if last not in cut_points:
        at = names.index(last)
        before = [each for each in cut_points if names.index(each) < at][-1:]
        after = [each for each in cut_points if names.index(each) > at][:1]
        raise SpecError(
            f"the model cannot be cut after `{name}`: later it needs more than one tensor, or a layer once more",
            key="model.cut",
            hint=f"cut it after {listed(before + after)}" if before + after else "choose another layer",
        )
    return last


def _some(cut_points: Sequence[str]) -> str:
    if len(cut_points) <= _MOST_NAMED:
        return listed(list(cut_points), "and")
    step = len(cut_points) / _MOST_NAMED
    return listed([cut_points[int(index * step)] for index in range(_MOST_NAMED)], "and") + " among others"
