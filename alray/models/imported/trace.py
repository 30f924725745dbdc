"""What a module computes, as a graph whose nodes have names: of the module and the operation that they come from.

The names are those of torchvision's `get_graph_node_names`: `layer1.0.conv1`, `layer1.0.add`, `layer1.0.relu_1`.
"""

from __future__ import annotations

import copy
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.fx.node import map_aggregate

from alray.config.sections.section import listed
from alray.config.user_code import own_place, own_place_of, own_problem
from alray.core.errors import FAULTS_OF_USER_CODE, Problem, SpecError
from alray.core.randomness.generators import put_back, seed_all
from alray.models.imported.watch import (
    LostError,
    Watch,
    attributes,
    autocast,
    changed,
    context_since,
    draws_so_far,
    line_of_change,
    settings,
)

_WHOLE = "whole"
"""The path of a model inside the module that calls it with one argument."""
_CONSTANT = "_tensor_constant"
_CPU = torch.device("cpu")
_DRAWING = ("rand", "bernoulli", "normal", "dropout", "multinomial", "poisson", "exponential", "uniform")
"""Parts of names of operations that draw random numbers."""
_MOVE = (
    "move this into a separate submodule, which then stays in one piece and computes as it is written; what changes "
    "from one call to the next must be a buffer there, which checkpoints hold"
)


class Lost(NamedTuple):
    """Something that a trace would lose.

    Attributes:
        what: a sentence without its subject, which is `forward`.
        place: its file and line, or a problem that has them; None where they are not known yet.
    """

    what: str
    place: Problem | tuple[str, int] | None = None


@dataclass(frozen=True)
class Trace:
    """The operations of a model in the order of their computation, in training or in evaluation mode.

    Attributes:
        names: of each node but the last, which returns the result.
        opaque: paths of the submodules that could not be traced: each is one node.
        fixed: nodes that are made of constants and unchanged buffers alone. Each part computes those that it needs.
        grad_modes: of each node, whether gradients are on where `forward` computes it; of the input, where it begins.
        constants: tensors that `forward` makes of no input, by the names under which the graph finds them.
    """

    graph: fx.Graph
    names: dict[fx.Node, str]
    opaque: frozenset[str]
    fixed: frozenset[fx.Node]
    grad_modes: dict[fx.Node, bool]
    constants: dict[str, torch.Tensor]

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
    lowered: bool = False,
) -> Trace:
    """The operations of `model`, called with one tensor. It is traced twice, on copies, under different random numbers.

    A submodule whose `forward` cannot be traced, or does in Python what a trace would lose, becomes one node, and so do
    torch's layers.

    Args:
        title: of the model, in errors.
        opaque: paths of submodules that are one node in any case.
        frozen: paths of submodules that compute as in evaluation.
        lowered: whether the parts compute in mixed precision, so that contexts within `forward` may end that.

    Raises:
        SpecError: where the model's `forward` is such a one, and where it does not return one tensor.
    """
    mode = "training" if training else "evaluation"
    with put_back(), torch.device("cpu"), torch.set_grad_enabled(training), autocast(enabled=lowered):
        while True:  # each round makes one more submodule opaque, or is the last
            attempts = []
            for seed in range(2):
                seed_all(_CPU, seed, "trace")
                attempt = _Attempt(model, title, opaque, frozen, training=training)
                lost = attempt.trace()
                if lost:
                    break
                attempts.append(attempt)
            else:
                lost = attempts[0].other_than(attempts[1])
            if not lost:
                break
            if "" in lost:
                raise attempt.refusal(lost[""])
            opaque |= lost.keys()
    graph = attempts[0].graph
    returned = next(node for node in graph.nodes if node.op == "output").args[0]
    is_tuple = isinstance(returned, fx.Node) and isinstance(returned.target, type)
    if is_tuple or not isinstance(returned, fx.Node):
        kind = (returned.target if is_tuple else type(returned)).__name__.removeprefix("immutable_").lstrip("_")
        file, line = own_place(type(model).forward) or (None, None)
        problem = Problem(
            f"`forward` of {title} returns a `{kind}` in {mode}, not one tensor",
            "give constructor arguments, by `with`, with which it returns the class scores alone, such as "
            "`aux_logits: false`, or write a class around it that does",
            file,
            line,
            "model.from",
        )
        raise SpecError.of((problem,))
    constants = {f"{name}_{mode}": value for name, value in attempts[0].constants().items()}
    for node in graph.nodes:
        if node.op == "get_attr" and f"{node.target}_{mode}" in constants:
            node.target = f"{node.target}_{mode}"
    tracer = attempts[0].tracer
    return Trace(graph, tracer.names, opaque, tracer.fixed(), tracer.grad_modes, constants)


class _Attempt:
    """One pass through a model's `forward`, on a copy whose weights are those of the model."""

    graph: fx.Graph

    def __init__(
        self,
        model: nn.Module,
        title: str,
        opaque: frozenset[str],
        frozen: frozenset[str],
        *,
        training: bool,
        notes_draws: bool = False,
    ) -> None:
        self._again = partial(_Attempt, model, title, opaque, frozen, training=training)
        self._title = title
        self.model = copy_of(model, title, own=True)
        self.model.train(training)
        for path in frozen:
            self.model.get_submodule(path).eval()
        self.around = _OneArgument(self.model)
        self.tracer = _Tracer(self.around, opaque, notes_draws=notes_draws)

    def trace(self) -> dict[str, Lost]:
        """What a trace would lose, by the path of the submodule whose `forward` does it. () is the model itself.

        Raises SpecError where the model's `forward` cannot be traced for another reason.
        """
        before = {path: attributes(module) for path, module in self.model.named_modules()}
        draws = draws_so_far()
        try:
            with Watch(self.model):
                self.graph = self.tracer.trace(self.around)
        except FAULTS_OF_USER_CODE as error:
            if self.tracer.lost:  # a context that nothing can enter again may be why it fails
                return self.tracer.lost
            path = self.tracer.failed or ""
            if path or isinstance(error, LostError):
                return {path: Lost(str(error), own_problem(error, "", key="model.from"))}
            raise self._not_traced(error) from error
        if draws != draws_so_far() and not self.tracer.lost:
            return self._again(notes_draws=True).trace()
        lost = dict(self.tracer.lost)
        for path, module in self.model.named_modules():
            names = changed(before[path], module)
            if names and path not in lost:
                lost[self.tracer.traced_around(path)] = Lost(_changes(path, names))
        return lost

    def other_than(self, other: _Attempt) -> dict[str, Lost]:
        """Where the other attempt has found another operation, or another constant."""
        constants, of_other = self.constants(), other.constants()
        for node, again in zip_longest(self.graph.nodes, other.graph.nodes):
            known = node or again
            same = node is not None and again is not None and _as_text(node) == _as_text(again)
            if same and node.op == "get_attr" and node.target in constants:
                same = torch.equal(constants[node.target], of_other[node.target])
            if not same:
                tracer = self.tracer if node is not None else other.tracer
                what = "computes something else when it is called again, as code does that draws, counts or waits"
                return {tracer.inside.get(known, ""): Lost(what, tracer.lines.get(known))}
        return {}

    def constants(self) -> dict[str, torch.Tensor]:
        """The tensors that `forward` makes of no input. torch.fx keeps them next to the model."""
        names = {str(node.target) for node in self.graph.nodes if node.op == "get_attr"}
        return {name: getattr(self.around, name) for name in names if name.startswith(_CONSTANT)}

    def refusal(self, lost: Lost) -> SpecError:
        """The error for what the model's `forward` does, with its line."""
        place = lost.place or self._again()._line_of_change() or own_place(type(self.model).forward)
        return _not_traced(self._title, f"it {lost.what}", _MOVE, place)

    def _line_of_change(self) -> tuple[str, int] | None:
        """The statement that changes an attribute, draws from a generator of Python or NumPy, or opens a context."""
        modules = list(self.model.modules())
        before, draws, around = [attributes(module) for module in modules], draws_so_far(), settings()

        def has_changed() -> bool:
            return settings() != around or draws != draws_so_far() or any(map(changed, before, modules))

        return line_of_change(partial(self.tracer.trace, self.around), has_changed)

    def _not_traced(self, error: Exception) -> SpecError:
        """The refusal of a model whose `forward` itself torch.fx cannot trace."""
        hint = (
            "write a choice by the values of tensors with torch.where; move other code that cannot be traced, such as "
            "a loop over a size, into a submodule, which then stays in one piece"
        )
        return _not_traced(self._title, first_line(error), hint, own_problem(error, "", key="model.from"))


def with_device(arguments: Any, device: Any) -> Any:
    """The arguments of a node with another device for each that they name."""
    replaced: Any = map_aggregate(arguments, lambda each: device if isinstance(each, torch.device) else each)
    return replaced


class _OneArgument(nn.Module):
    """Calls a model with one argument, so that its other parameters have their defaults while it is traced."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, s: Any) -> Any:
        return self.whole(s)


class _Tracer(fx.Tracer):
    """Records names of nodes, the innermost submodule in which tracing failed, and what a trace would lose.

    Paths begin at the model itself: the module around it, which has one argument, is left out.
    """

    def __init__(self, around: nn.Module, opaque: frozenset[str], *, notes_draws: bool) -> None:
        """
        Args:
            notes_draws: whether to look for draws at each submodule, which takes time.
        """
        super().__init__()
        self.names: dict[fx.Node, str] = {}
        self.inside: dict[fx.Node, str] = {}
        """The path of the submodule whose `forward` made a node: of a layer of torch, the one that called it."""
        self.grad_modes: dict[fx.Node, bool] = {}
        self.lines: dict[fx.Node, tuple[str, int]] = {}
        """The line of the user's code that did."""
        self.failed: str | None = None
        self.lost: dict[str, Lost] = {}
        self._opaque = opaque
        self._inside = ""
        self._entered: set[str] = set()
        self._given: Counter[str] = Counter()
        self._parameters = frozenset(
            _without_whole(name) for name, _ in around.named_parameters(remove_duplicate=False)
        )
        self._tensors = {id(each): name for name, each in (*around.named_parameters(), *around.named_buffers())}
        self._of_buffers: dict[fx.Node, frozenset[str]] = {}
        self._written: set[str] = set()
        self._settings = settings()
        self._draws = draws_so_far()
        self._notes_draws = notes_draws

    def fixed(self) -> frozenset[fx.Node]:
        """The nodes that are made of constants and buffers alone, which no operation writes into."""
        return frozenset(node for node, names in self._of_buffers.items() if not names & self._written)

    def traced_around(self, path: str) -> str:
        """The path of the innermost submodule above `path` whose `forward` was traced."""
        while path and path not in self._entered:
            path = path.rpartition(".")[0]
        return path

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        path = _without_whole(module_qualified_name)
        return path in self._opaque or super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._note_draws()
        around, self._inside = self._inside, _without_whole(self.path_of_module(m))
        is_traced = not self.is_leaf_module(m, self._inside)
        if is_traced:
            self._entered.add(self._inside)
            before = attributes(m)
        try:
            result = super().call_module(m, forward, args, kwargs)
            self._note_draws()
            if is_traced and (names := changed(before, m)):
                self.lost.setdefault(self._inside, Lost(_changes("", names)))
        except FAULTS_OF_USER_CODE:
            if self.failed is None:
                self.failed = self.traced_around(self._inside)
            raise
        finally:
            self._inside = around
        return result

    def _note_draws(self) -> None:
        """Note the submodule that is being traced if there were draws since the last call."""
        if not self._notes_draws:
            return
        draws = draws_so_far()
        if draws != self._draws:
            self.lost.setdefault(self._inside, Lost("draws random numbers that are not made of its input"))
        self._draws = draws

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, fx.Proxy]) -> Any:
        """A buffer is a node, as a parameter is: else what `forward` makes of its values would be a constant."""
        name = self._tensors.get(id(attr_val))
        if name is None:
            return attr_val
        if name not in parameter_proxy_cache:
            make = None if isinstance(attr_val, nn.Parameter) else partial(_Buffer, self, attr_val)
            parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {}, proxy_factory_fn=make)
        return parameter_proxy_cache[name]

    def create_node(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        if kind in ("placeholder", "output"):
            node = super().create_node(kind, target, *args, **kwargs)
            self.grad_modes[node] = torch.is_grad_enabled()
            return node
        inside = self.traced_around(self._inside)
        if (context := context_since(self._settings)) is not None:
            self.lost.setdefault(inside, Lost(context))
        if kind in ("call_module", "get_attr"):
            target = _without_whole(target)
        node = super().create_node(kind, target, *args, **kwargs)
        self.inside[node] = inside
        self.grad_modes[node] = torch.is_grad_enabled()
        if (line := _own_line()) is not None:
            self.lines[node] = line
        self._follow_buffers(node)
        of_module = [target] if kind == "call_module" else [self._inside, re.sub(r"_\d+$", "", node.name)]
        name = ".".join(part for part in of_module if part)
        if node in self._of_buffers and kind != "get_attr":
            name += "@buffer"  # torchvision's names do not count these
        again = self._given[name]
        self._given[name] += 1
        self.names[node] = f"{name}_{again}" if again else name
        return node

    def _follow_buffers(self, node: fx.Node) -> None:
        """Note whether a node is made of buffers and constants alone, and the buffers that it may write into."""
        if node.op == "get_attr":
            if node.target not in self._parameters:
                self._of_buffers[node] = frozenset([str(node.target)])
            return
        inputs = node.all_input_nodes
        for each in inputs:
            if each in self._of_buffers and _may_write(node, each, self._opaque):
                self._written |= self._of_buffers[each]
        if node.op != "call_module" and inputs and all(each in self._of_buffers for each in inputs):
            names = frozenset().union(*(self._of_buffers[each] for each in inputs))
            self._of_buffers[node] = names
            if any(word in _name(node.target) for word in _DRAWING):
                self._written |= names


class _Buffer(fx.Proxy):
    """A buffer while it is traced. Its form is known. Its values are not: a checkpoint may have others."""

    def __init__(self, tracer: fx.Tracer, buffer: torch.Tensor, node: fx.Node) -> None:
        super().__init__(node, tracer)
        self.shape, self.dtype, self.device, self.ndim = buffer.shape, buffer.dtype, buffer.device, buffer.ndim

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return self.ndim

    def numel(self) -> int:
        return self.shape.numel()

    def __len__(self) -> int:
        return self.shape[0]

    def item(self) -> Any:
        raise LostError(f"makes a number of the values of the buffer `{self.node.target}`")

    def __bool__(self) -> bool:
        return bool(self.item())

    __int__ = __float__ = __index__ = tolist = numpy = item


def _may_write(node: fx.Node, into: fx.Node, opaque: Collection[str]) -> bool:
    """Whether an operation may write into one of its inputs."""
    if node.op == "call_module":
        return str(node.target) in opaque
    name = _name(node.target)
    if node.op == "call_method":
        return name.endswith("_") and not name.endswith("__") and node.args[0] is into
    is_of_torch = getattr(node.target, "__module__", "").partition(".")[0] in ("torch", "_operator", "builtins", "math")
    return (
        not is_of_torch
        or name.endswith("_")
        or name in ("setitem", "batch_norm", "instance_norm")
        or "out" in node.kwargs
    )


def _name(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", "")


def _own_line() -> tuple[str, int] | None:
    """The line of the user's code that is being executed, if it is theirs."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if own_place_of(frame.f_code) is not None:
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def _as_text(node: fx.Node) -> str:
    """An operation with all its arguments. A constant's value is not part of it."""
    return repr((node.op, node.name, node.target, node.args, node.kwargs))


def _changes(path: str, names: Sequence[str]) -> str:
    changes = listed([".".join(part for part in (path, name) if part) for name in sorted(names)], "and")
    return f"changes the state of the model from one call to the next: {changes}"


def _without_whole(path: str) -> str:
    return path.removeprefix(_WHOLE).removeprefix(".")


def copy_of(model: nn.Module, title: str, *, own: bool) -> nn.Module:
    """A copy of a model. Raises SpecError where it cannot be copied.

    Args:
        own: whether parameters and buffers are those of the model itself.
    """
    memo: dict[int, Any] = {id(each): each for each in (*model.parameters(), *model.buffers())} if own else {}
    try:
        return copy.deepcopy(model, memo)
    except FAULTS_OF_USER_CODE as error:
        raise SpecError(
            f"{title} cannot be copied: {first_line(error)}",
            key="model.from",
            hint="keep no results of computations, open files or locks in its attributes; the old "
            "torch.nn.utils.weight_norm does, that of torch.nn.utils.parametrizations does not",
        ) from error


def _not_traced(title: str, why: str, hint: str, place: Problem | tuple[str, int] | None) -> SpecError:
    """The refusal of a model whose `forward` itself cannot be traced, with the line of the user's code if it is one."""
    if isinstance(place, Problem):
        place = (place.file, place.line) if place.file is not None and place.line is not None else None
    file, line = place or (None, None)
    message = f"`forward` of {title} cannot be traced, so that it can be cut: {why}"
    return SpecError.of((Problem(message, hint, file, line, "model.from"),))


def first_line(error: Exception) -> str:
    """The first line of an error's text, or its name if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
