"""What a run of a whole model shows: its steps in order, what each gives and costs, and what is needed later."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from alray.config.user_code import own_place_of
from alray.core.compat import TorchDispatchMode, tree_leaves
from alray.models.imported.calls import named_tensors, scores_of
from alray.models.imported.steps import LOOKS, READS, Gives, Key, Leaf, Walk, is_open


@dataclass
class Step:
    """One step of a run.

    Attributes:
        gives: its leaves.
        module: that was called; None: it is a function.
        begun, ended: the number of steps that had ended when it began and ended.
        again: whether it is a view, or made of samples and constants alone, so that parts compute it again.
        weights: whether it uses a matrix of parameters itself; that of a module below belongs to that.
        work: of all up to its end, floating-point operations.
        cost: the same, and one for each value that a function gives.
        alive: how many activations are needed after its end.
    """

    key: Key
    gives: Gives
    module: nn.Module | None
    begun: int
    ended: int
    again: bool
    weights: bool
    work: float
    cost: float
    alive: int = 0


class _NoModules(nullcontext[None]):
    """Takes the place of torch's tracker of modules. That one watches the gradients of what modules are given, and
    fails where none are computed and a module is given a view of a weight."""

    parents = ("Global",)


class Recording(Walk):
    """All steps of one run, inside modules too."""

    def __init__(self) -> None:
        from torch.utils.flop_counter import FlopCounterMode  # with it comes Triton, which no stage needs

        super().__init__()
        self._counter = FlopCounterMode(display=False)
        self._counter.mod_tracker = _NoModules()  # type: ignore[assignment]
        self.steps: list[Step] = []
        self.result: Any = None
        self.writes_input = False
        self._elements = 0
        self._recurrent = 0.0
        self.values: dict[Leaf, torch.Tensor] = {}
        """All tensors that the steps gave, and the samples."""
        self.reads: dict[Key, float] = {}
        """The numbers that steps read of tensors."""
        self.looks: list[tuple[Key, int, str]] = []
        """Where Python reads what the model has computed, or numbers in its samples: the call around it, the number of
        steps that had ended before, and the line of a user's code in words."""
        self.used: dict[str, int] = {}
        """The parameters and buffers that are used, each with the number of steps that had ended before."""
        self._known: set[int] = set()  # where the memory comes from: samples, buffers, constants, functions
        self._made: dict[int, int] = {}  # after which step a memory got values of parameters or random numbers
        self._computed: dict[int, bool] = {}  # the memory of what is made of samples; True: of parameters, too
        self._used: dict[int, int] = {}  # before the end of which step it was used last

    def run(self, model: nn.Module, given: Mapping[Leaf, torch.Tensor]) -> None:
        """Record a call of `forward`, and keep its result.

        Args:
            given: the samples, and the mask of a text.
        """
        plain = [vars(module) for module in model.modules()]
        self._known = {_memory(each) for each in _tensors([*given.values(), *plain])}
        self.values |= given
        self._computed = dict.fromkeys(map(_memory, given.values()), False)
        versions = [each._version for each in given.values()]
        touched = Touched(model, lambda name: self.used.setdefault(name, len(self.steps)))
        with self._counter, touched, self.over(model):
            self.result = scores_of(model, *given.values())
        self.writes_input = versions != [each._version for each in given.values()]
        for tensor in _tensors(self.result):
            self._used[_memory(tensor)] = len(self.steps)
        for step in self.steps:
            step.alive = sum(made <= step.ended < self._used.get(memory, -1) for memory, made in self._made.items())

    def call(self, key: Key, module: nn.Module, compute: Callable[[], Any]) -> Any:
        begun = len(self.steps)
        with self.inside(key):
            value = compute()
        tensors = list(_tensors(value))
        again = bool(tensors) and all(map(self._is_free, tensors))
        if not again:
            self._make(tensors)
        matrices = [each for each in module._parameters.values() if each is not None and each.ndim > 1]
        weights = bool(matrices) and not any(True for _ in module.children())  # or a function in it uses them
        if isinstance(module, nn.RNNBase) and tensors:  # torch does not count them
            self._recurrent += 2.0 * sum(each.numel() for each in matrices) * tensors[0].shape[:-1].numel()
        self._note(key, value, module, begun, again=again, weights=weights)
        return value

    def _is_free(self, tensor: torch.Tensor) -> bool:
        """Whether it is made of samples and constants alone."""
        return _memory(tensor) in self._known and _memory(tensor) not in self._made

    def function(self, key: Key, name: str, given: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        begun, drawn = len(self.steps), torch.get_rng_state()
        value = compute()
        took, gave = list(_tensors(given)), list(_tensors(value))
        for tensor in took:
            self._used[_memory(tensor)] = begun
        computed = {isinstance(each, nn.Parameter) or self._computed.get(_memory(each)) for each in took} - {None}
        if computed and name in LOOKS and (True in computed or name != "__bool__"):
            self.looks.append((key[:-1], begun, own_line()))
        if not gave:
            if name in READS:
                self.reads[key] = value
                self._note(key, value, None, begun, again=False, weights=False)
            return value
        parameters = [each for each in took if isinstance(each, nn.Parameter)]
        drew = not torch.equal(drawn, torch.get_rng_state())
        made = drew or bool(parameters) or not all(map(self._is_free, took))
        memories = set(map(_memory, gave))
        self._computed |= dict.fromkeys(memories, True in computed) if computed else {}
        in_place = any(one is other for one in gave for other in took)
        of_others = set(map(_memory, took)) - set(map(_memory, parameters))
        is_view = memories <= of_others and not in_place
        self._known |= memories
        if made:
            self._make(gave)
        self._elements += sum(each.numel() for each in gave)
        weights = any(each.ndim > 1 for each in parameters)
        self._note(key, value, None, begun, again=is_view or not made, weights=weights)
        return value

    def _make(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            self._made.setdefault(_memory(tensor), len(self.steps))

    def _note(self, key: Key, value: Any, module: nn.Module | None, begun: int, *, again: bool, weights: bool) -> None:
        for number, each in enumerate(tree_leaves(value)):
            if isinstance(each, torch.Tensor):
                self.values[key, number] = each
        work = float(self._counter.get_total_flops()) + self._recurrent
        cost, ended = work + self._elements, len(self.steps)
        self.steps.append(Step(key, Gives.of(value), module, begun, ended, again, weights, work, cost))

    def look_before(self, key: Key, ended: int) -> str:
        """Where `forward` reads a value before a step ends, in code that the part after it runs too: a sentence, or "".
        By the value it may choose other steps for another mini-batch, as a loop does that ends by values."""
        lines = [line for around, before, line in self.looks if before <= ended and is_open(around, [key])]
        return f"`forward` reads the value of a tensor{lines[0]}" if lines else ""

    def starts(self) -> list[Step]:
        """The steps with weights, each without what it calls, in the order in which they begin."""
        keys = {step.key for step in self.steps if step.weights}
        found = [
            step
            for step in self.steps
            if step.weights and not any(step.key[:end] in keys for end in range(len(step.key)))
        ]
        return sorted(found, key=lambda step: step.begun)


class Touched(TorchDispatchMode):
    """Tells which parameters and buffers of a model operations use."""

    def __init__(self, model: nn.Module, note: Callable[[str], object]) -> None:
        """
        Args:
            note: gets the name of each, as often as it is used.
        """
        super().__init__()
        self._note = note
        self._alive = list(named_tensors(model))  # a buffer that is replaced leaves its memory to others
        self._names: dict[int, set[str]] = {}
        for name, value in self._alive:
            self._names.setdefault(_memory(value), set()).add(name)

    def __torch_dispatch__(
        self, func: Any, types: Collection[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for tensor in _tensors((args, kwargs)):
            for name in self._names.get(_memory(tensor), ()):
                self._note(name)
        return func(*args, **(kwargs or {}))


def own_line() -> str:
    """The line of a user's code that is being run, in brackets; "" where there is none."""
    frame = inspect.currentframe()
    while frame is not None and not own_place_of(frame.f_code):
        frame = frame.f_back
    return "" if frame is None else f" (line {frame.f_lineno} of {Path(frame.f_code.co_filename).name})"


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    return (each for each in tree_leaves(value) if isinstance(each, torch.Tensor))


def _memory(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except NotImplementedError as error:
        dense = "use dense ones, as by `to_dense()`; in place of `torch.vmap`, give the code one more dimension"
        raise NotImplementedError(f"it computes with sparse tensors, or within `torch.vmap`: {dense}") from error
