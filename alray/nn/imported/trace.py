"""What a module computes, as a graph whose nodes have names: of the module and the operation that they come from.

The names are those of torchvision's `get_graph_node_names`: `layer1.0.conv1`, `layer1.0.add`, `layer1.0.relu_1`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.fx.node import map_aggregate

from alray.errors import Problem, SpecError
from alray.user_code import FAULTS_OF_USER_CODE, own_place, own_problem

_WHOLE = "whole"
"""The path of a model inside the module that calls it with one argument."""
_CONSTANT = "_tensor_constant"


@dataclass(frozen=True)
class Trace:
    """The operations of a model in the order of their computation, in training or in evaluation mode.

    Attributes:
        names: of each node but the last, which returns the result.
        opaque: paths of the submodules that could not be traced: each is one node.
    """

    graph: fx.Graph
    names: dict[fx.Node, str]
    opaque: frozenset[str]

    @property
    def nodes(self) -> list[fx.Node]:
        """All nodes without the input and the result."""
        return [node for node in self.graph.nodes if node.op not in ("placeholder", "output")]

    @property
    def input(self) -> fx.Node:
        found: fx.Node = next(node for node in self.graph.nodes if node.op == "placeholder")
        return found

    @property
    def output(self) -> fx.Node:
        """The node whose value the model returns."""
        returned = next(node for node in self.graph.nodes if node.op == "output").args[0]
        assert isinstance(returned, fx.Node)
        return returned


def trace(
    model: nn.Module,
    title: str,
    *,
    training: bool,
    opaque: frozenset[str] = frozenset(),
    frozen: frozenset[str] = frozenset(),
) -> Trace:
    """The operations of `model`, called with one tensor.

    A submodule whose `forward` cannot be traced becomes one node, and so do torch's own layers.

    Args:
        title: of the model, in errors.
        opaque: paths of submodules that are one node in any case.
        frozen: paths of submodules that compute as in evaluation.

    Raises:
        SpecError: where the model's own `forward` cannot be traced, and where it does not return one tensor.
    """
    before = {part: part.training for part in model.modules()}
    model.train(training)
    for path in frozen:
        model.get_submodule(path).eval()
    try:
        while True:
            tracer = _Tracer(opaque)
            around = _OneArgument(model)
            try:
                graph = tracer.trace(around)
            except FAULTS_OF_USER_CODE as error:
                if tracer.failed is None or tracer.failed == "":
                    raise _not_traced(error, title) from error
                opaque |= {tracer.failed}
            else:
                break
    finally:
        for part, mode in before.items():
            part.training = mode
    returned = next(node for node in graph.nodes if node.op == "output").args[0]
    is_tuple = isinstance(returned, fx.Node) and isinstance(returned.target, type)
    if is_tuple or not isinstance(returned, fx.Node):
        kind = (returned.target if is_tuple else type(returned)).__name__.removeprefix("immutable_").lstrip("_")
        file, line = own_place(type(model).forward) or (None, None)
        problem = Problem(
            f"`forward` of {title} returns a `{kind}` in {'training' if training else 'evaluation'}, not one tensor",
            "give constructor arguments, by `with`, with which it returns the class scores alone, such as "
            "`aux_logits: false`, or write a class around it that does",
            file,
            line,
            "model.from",
        )
        raise SpecError.of((problem,))
    _keep_constants(around, model, graph, "training" if training else "evaluation")
    return Trace(graph, tracer.names, opaque)


def with_device(arguments: Any, device: Any) -> Any:
    """The arguments of a node with another device in the place of each that they name."""
    replaced: Any = map_aggregate(arguments, lambda each: device if isinstance(each, torch.device) else each)
    return replaced


def _keep_constants(around: nn.Module, model: nn.Module, graph: fx.Graph, mode: str) -> None:
    """Give the model the tensors that its `forward` makes of no input. torch.fx keeps them next to the model."""
    for node in graph.nodes:
        if node.op == "get_attr" and str(node.target).startswith(_CONSTANT):
            name = f"{node.target}_{mode}"
            if not hasattr(model, name):
                model.register_buffer(name, getattr(around, str(node.target)), persistent=False)
            node.target = name


class _OneArgument(nn.Module):
    """Calls a model with one argument, so that its other parameters have their defaults while it is traced."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, s: Any) -> Any:
        return self.whole(s)


class _Tracer(fx.Tracer):
    """Records names of nodes, and the innermost submodule in which tracing failed.

    Paths begin at the model itself: the module around it, which has one argument, is left out.
    """

    def __init__(self, opaque: frozenset[str]) -> None:
        super().__init__()
        self.names: dict[fx.Node, str] = {}
        self.failed: str | None = None
        self._opaque = opaque
        self._inside = ""
        self._given: Counter[str] = Counter()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        path = _without_whole(module_qualified_name)
        return path in self._opaque or super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        around, self._inside = self._inside, _without_whole(self.path_of_module(m))
        try:
            return super().call_module(m, forward, args, kwargs)
        except FAULTS_OF_USER_CODE:
            if self.failed is None:
                self.failed = self._inside
            raise
        finally:
            self._inside = around

    def create_node(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        if kind in ("call_module", "get_attr"):
            target = _without_whole(target)
        node = super().create_node(kind, target, *args, **kwargs)
        if kind not in ("placeholder", "output"):
            of_module = [target] if kind == "call_module" else [self._inside, re.sub(r"_\d+$", "", node.name)]
            name = ".".join(part for part in of_module if part)
            again = self._given[name]
            self._given[name] += 1
            self.names[node] = f"{name}_{again}" if again else name
        return node


def _without_whole(path: str) -> str:
    return path.removeprefix(_WHOLE).removeprefix(".")


def _not_traced(error: Exception, title: str) -> SpecError:
    """The refusal of a model whose own `forward` cannot be traced, with the line of the user's code if it is one."""
    message = f"`forward` of {title} cannot be traced, so that it can be cut: {first_line(error)}"
    hint = (
        "write a choice by the values of tensors with torch.where; move other code that cannot be traced, such as a "
        "loop over a size, into a submodule, which then stays in one piece"
    )
    problem = own_problem(error, message, key="model.from", hint=hint) or Problem(message, hint, key="model.from")
    return SpecError.of((problem,))


def first_line(error: Exception) -> str:
    """The first line of an error's text, or its name if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
