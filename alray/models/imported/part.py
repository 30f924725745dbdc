"""A part of a model as a module."""

from __future__ import annotations

import copy
import importlib
import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import fx, nn

from alray.models.imported.trace import Trace, with_device
from alray.models.readout import Pooling


class Part(nn.Module):
    """The operations of a model from one cut point to another: `[N, ...] -> [N, ...]`. Its parameters have the names
    that they have in the whole model.

    Its other attributes have names that no model has: torch finds submodules by attributes when it exports.

    It is called with the samples, and the mask of a text's words if there is one.
    """

    alray_draws = True
    """A function of the model may draw random numbers without a layer that says so."""
    alray_models: tuple[nn.Module, ...] = ()
    """Modules that compute with the tensors of this one, and are no submodules."""

    def __init__(self, *, frozen: Collection[str] = (), pooling: Pooling = "mean") -> None:
        """
        Args:
            frozen: paths of modules that compute as in evaluation.
            pooling: how local losses read what the part gives.
        """
        super().__init__()
        self.alray_pooling = pooling
        self._alray_frozen = tuple(f"{path}." for path in frozen)

    def train(self, mode: bool = True) -> Part:
        """Batch normalisation and dropout of frozen modules stay as in evaluation."""
        super().train(mode)
        for path, module in self.named_modules():
            if f"{path}.".startswith(self._alray_frozen):
                module.eval()
        return self

    def alray_hold(self, model: nn.Module) -> None:
        """Have the tensors and submodules of a module that computes, under the names that they have there."""
        self.alray_models = (model,)  # a tuple, so that it is no submodule
        self._parameters, self._buffers, self._modules = model._parameters, model._buffers, model._modules
        self._non_persistent_buffers_set = model._non_persistent_buffers_set

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Part:
        """Tensors that modules have as plain attributes go to the device too."""
        for module, name, value in plain_tensors(self):
            vars(module)[name] = fn(value)
        super()._apply(fn, recurse)
        return self


class TracedPart(Part):
    """What it computes in training and in evaluation are two graphs on the same parameters."""

    def __init__(
        self,
        whole: nn.Module,
        training: fx.Graph,
        evaluation: fx.Graph,
        *,
        frozen: Collection[str] = (),
        pooling: Pooling = "mean",
        shared: dict[int, Any] | None = None,
    ) -> None:
        """The graphs take one tensor, and name modules and parameters of `whole`, which are copied.

        Args:
            shared: what stands for an object of `whole` in place of a copy, by the identity of that object.
            frozen: as for `Part`, and `pooling`.
        """
        super().__init__(frozen=frozen, pooling=pooling)
        shared = {} if shared is None else shared
        holder = nn.Module()  # its names are the model's alone
        for graph in (training, evaluation):
            for node in graph.nodes:
                if node.op in ("call_module", "get_attr"):
                    _graft(holder, whole, str(node.target), shared)
        self._alray_code = _Code.of(training), _Code.of(evaluation)
        self._alray_training, self._alray_evaluation = (code.function() for code in self._alray_code)
        self.alray_hold(holder)

    def __getstate__(self) -> dict[str, Any]:
        """Without the functions: Python does not find them in a module, and so cannot pickle them."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("_alray_training", "_alray_evaluation")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._alray_training, self._alray_evaluation = (code.function() for code in self._alray_code)

    def forward(self, s: torch.Tensor, mask: None = None) -> torch.Tensor:
        """
        Args:
            mask: always None, for a head is called with one.
        """
        compute = self._alray_training if self.training else self._alray_evaluation
        return compute(self.alray_models[0], s)


def plain_tensors(model: nn.Module) -> list[tuple[nn.Module, str, torch.Tensor]]:
    """The tensors that modules have as plain attributes, each with its module and its name there. Without those that
    torch computes from weights."""
    modules = [
        each
        for module in model.modules()
        for each in (module, *(module.alray_models if isinstance(module, Part) else ()))
    ]
    return [
        (module, name, value)
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor) and value.is_leaf and not value.requires_grad
    ]


def without_values(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor or parameter of the same size on the meta device."""
    empty = torch.empty_like(tensor, device="meta")
    return nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty


def between(
    trace: Trace, after: Sequence[fx.Node], until: Sequence[fx.Node], takes: Sequence[tuple[int, ...]] = ()
) -> fx.Graph:
    """The nodes after those of one cut point, up to those of another as a separate graph. Parameters that they need
    come with them.

    Several tensors travel as one: their samples as rows, one after the other, `[N, numbers of all]`.

    Args:
        after: the nodes whose values come in, and `until`: those whose values go out. The last one is the cut point.
        takes: shapes of one sample of the values that come in, if there are several.
    """
    graph = fx.Graph()
    given = graph.placeholder("s")
    copies = dict(zip(after, _unpacked(graph, given, takes) if len(after) > 1 else [given], strict=True))
    inside = False
    for node in trace.graph.nodes:
        if inside and node.op != "output":
            _bring(node, trace, graph, copies)
        inside = inside or node is after[-1]
        if node is until[-1]:
            break
    _follow_the_input(graph, given)
    _switch_gradients(graph, trace, copies, came_in=after)
    results = [copies[node] for node in until]
    if len(results) > 1:
        rows = [graph.call_method("flatten", (result, 1)) for result in results]
        results = [graph.call_function(torch.cat, (rows, 1))]
    graph.output(results[0])
    return graph


def _bring(node: fx.Node, trace: Trace, graph: fx.Graph, copies: dict[fx.Node, fx.Node]) -> None:
    """Copy a node into the graph of a part, and what it needs that every part has: weights, and what is made of buffers
    alone."""
    for needed in node.all_input_nodes:
        if needed not in copies and (needed.op == "get_attr" or needed in trace.fixed):
            _bring(needed, trace, graph, copies)
    if node not in copies:
        copies[node] = graph.node_copy(node, lambda each: copies[each])


def _follow_the_input(graph: fx.Graph, given: fx.Node) -> None:
    """Let tensors that the model makes be on the device of the input: tracing took the device of its weights, such as
    `self.weight.device`, for a constant."""
    with graph.inserting_after(given):
        device = graph.call_function(getattr, (given, "device"))
    for node in graph.nodes:
        node.args, node.kwargs = with_device((node.args, node.kwargs), device)
    if not device.users:
        graph.erase_node(device)


def _switch_gradients(
    graph: fx.Graph, trace: Trace, copies: Mapping[fx.Node, fx.Node], *, came_in: Collection[fx.Node]
) -> None:
    """Compute with gradients on or off as `forward` does, and end as it began."""
    around = now = trace.grad_modes[trace.input]
    for node, copied in copies.items():
        if node not in came_in and node.op != "get_attr" and trace.grad_modes[node] != now:
            now = not now
            with graph.inserting_before(copied):
                graph.call_function(torch.set_grad_enabled, (now,))
    if now != around:
        graph.call_function(torch.set_grad_enabled, (around,))


def _unpacked(graph: fx.Graph, packed: fx.Node, shapes: Sequence[tuple[int, ...]]) -> list[fx.Node]:
    """The tensors that a part before has packed, each in separate memory: the model may write into one of them."""
    sizes = [math.prod(shape) for shape in shapes]
    rows = graph.call_method("split", (packed, sizes, 1))
    found = []
    for index, shape in enumerate(shapes):
        row = graph.call_function(operator.getitem, (rows, index))
        value = graph.call_method("unflatten", (row, 1, shape))
        found.append(graph.call_method("clone", (value,), {"memory_format": torch.contiguous_format}))
    return found


@dataclass(frozen=True)
class _Code:
    """What a graph computes, as text, which can be pickled.

    Attributes:
        names: the objects that the text names.
        modules: the modules of Python that it names: the name of each by its name in the text.
    """

    text: str
    names: dict[str, Any]
    modules: dict[str, str]

    @classmethod
    def of(cls, graph: fx.Graph) -> _Code:
        code = graph.python_code("self")
        modules = {name: each.__name__ for name, each in code.globals.items() if isinstance(each, ModuleType)}
        return cls(code.src, {name: each for name, each in code.globals.items() if name not in modules}, modules)

    def function(self) -> Callable[[nn.Module, torch.Tensor], torch.Tensor]:
        """A function of the module that holds the parameters, and the input."""
        names = self.names | {name: importlib.import_module(module) for name, module in self.modules.items()}
        exec(compile(self.text, "<traced model>", "exec"), names)  # torch's way from a graph to a function
        forward: Callable[[nn.Module, torch.Tensor], torch.Tensor] = names["forward"]
        return forward

    def __deepcopy__(self, memo: dict[int, Any]) -> _Code:
        """It does not change."""
        return self


def _graft(root: nn.Module, whole: nn.Module, path: str, shared: dict[int, Any]) -> None:
    """Copy what lies at `path` in `whole` to the same path in `root`.

    Args:
        shared: what has been copied, by identity.
    """
    *folders, name = path.split(".")
    here, there = root, whole
    for folder in folders:
        there = getattr(there, folder)
        if folder not in here._modules:
            here.add_module(folder, nn.Module())
        here = here._modules[folder]  # type: ignore[assignment]
    # An empty module was made for one of its parameters, which was needed before the module itself.
    is_empty = type(here._modules.get(name)) is nn.Module
    if not is_empty and (name in here._modules or name in here._parameters or name in here._buffers):
        return
    original = getattr(there, name)
    copied = copy.deepcopy(original, shared)
    if isinstance(original, nn.Module | nn.Parameter):
        setattr(here, name, copied)
    else:  # a buffer, or a tensor that tracing found to be constant
        saved = name in there._buffers and name not in there._non_persistent_buffers_set
        here.register_buffer(name, copied, persistent=saved)
