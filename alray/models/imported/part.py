"""A part of a model as a module: the model's own `forward`, of which it computes the steps from one cut to another."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from alray.config.user_code import own_problem
from alray.core.compat import BatchNorm, pop_mode, tree_leaves, tree_unflatten
from alray.core.errors import Problem, StageError
from alray.models.imported.absent import Form, LostError, Unused, origins_of
from alray.models.imported.calls import named_tensors, scores_of
from alray.models.imported.steps import (
    INPUT,
    POSITIONS,
    READS,
    Gives,
    Key,
    Leaf,
    Sizes,
    Walk,
    is_equal,
    is_open,
    name_of,
)
from alray.models.readout import Pooling
from alray.models.shape import Shape

Tensors = dict[str, torch.Tensor]
_READ = "reads"
"""The name in a message of the numbers that were read of tensors: float64 as int64, `[N, numbers]`, all rows alike."""


class _Ended(BaseException):
    """Ends `forward` at the end of a part. It is no Exception, so that `forward` does not catch it."""

    def __init__(self, run: PartRun) -> None:
        super().__init__()
        self.run = run


@dataclass(frozen=True)
class Seen:
    """What a part after a cut may ask of the steps before it, in training or in evaluation.

    Attributes:
        gives: of the steps that are not computed again.
        again: the steps that are: views, and what is made of samples alone.
        travels: the tensors that are needed of them.
        same: further ones that are needed, each with the one that travels and is the same tensor, as `Identity` gives
            it. Its gradients are then added in the order of the whole model.
    """

    gives: Mapping[Key, Gives]
    again: frozenset[Key] = frozenset()
    travels: frozenset[Leaf] = frozenset()
    same: Mapping[Leaf, Leaf] = field(default_factory=dict)

    def sizes(self, leaf: Leaf) -> Sizes:
        """Those of a tensor that is not computed again."""
        key, number = leaf
        found: Sizes = self.gives[key].leaves[number]
        return found


@dataclass(frozen=True)
class Cut:
    """The end of a step, at which one part ends and the next one begins. That of `INPUT` is before all steps.

    Attributes:
        travels: the tensors that are needed later, with their sizes; that of the step itself is the first one.
        reads: the steps that read numbers of tensors which are needed later, with what they read when it was cut.
        seen: by whether the model trains.
        clones: of the tensors that travel, those that are written later.
        fixed: those that have no gradient.
        below: names of the parameters and buffers that are used before it, and `above`: after it.
        pooling: how local losses read what the step gives.
        gradients: the memory layouts of gradients in the whole model that are not row-major: by the tensor that
            travels, the dimensions of its gradient from the largest stride to the smallest.
    """

    key: Key
    travels: Mapping[Leaf, Sizes]
    reads: Mapping[Key, float]
    seen: Mapping[bool, Seen]
    clones: frozenset[Leaf] = frozenset()
    fixed: frozenset[Leaf] = frozenset()
    below: frozenset[str] = frozenset()
    above: frozenset[str] = frozenset()
    pooling: Pooling = "mean"
    gradients: Mapping[Leaf, tuple[int, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return name_of(self.key)

    def shapes(self, positions: int) -> dict[str, Shape]:
        """Of one sample of all that travels, by name."""
        found = {
            name: Shape(packed_shape(self.travels[leaf], positions), _in_full(self.travels[leaf].dtype))
            for leaf, name in self.names.items()
        }
        return found | ({_READ: Shape((len(self.reads),), torch.int64)} if self.reads else {})

    @property
    def names(self) -> dict[Leaf, str]:
        """The names of the tensors in a message."""
        return {leaf: f"x{number}" if number else "s" for number, leaf in enumerate(self.travels)}


class PartRun(Walk):
    """One run of a part. Steps before its first cut give what came, or tensors without values."""

    def __init__(
        self,
        after: Cut,
        until: Cut | None,
        came: Mapping[Leaf, torch.Tensor],
        *,
        training: bool,
        sizes: tuple[int, int],
        read: Mapping[Key, float],
        like: torch.Tensor,
    ) -> None:
        """
        Args:
            after: the cut at which it begins.
            until: the cut at which it ends; None: with the result.
            came: the tensors that the part before sent.
            sizes: the numbers of samples and positions.
            read: the numbers that were read.
            like: a tensor of the type and on the device of all that is computed.
        """
        super().__init__()
        self._after, self._until, self._came = after, until, came
        self._seen = after.seen[training]
        self._next = Seen({}) if until is None else until.seen[training]
        self._ends = [after.key] if until is None else [after.key, until.key]
        self._sizes, self._like = sizes, like
        self.own = after.key == INPUT
        """Whether steps are computed: those after the first cut."""
        self.kept = {leaf: came[leaf] for leaf in self._next.travels if leaf in came}
        """The tensors that the next part needs."""
        self.reads = dict(read)
        """The numbers that were read, here too."""
        self.asked: set[Key] = set()
        """The steps before the first cut that were asked for what they gave, or for a number."""
        self.again: set[Key] = set()
        """Those that were computed again."""
        self.used: set[str] = set()
        """The parameters and buffers that were used after the first cut."""

    def of(self, model: nn.Module) -> Any:
        """The scores of a model, None where the part ends before them. Raises LostError."""
        given = [self.leaf((INPUT, number), form) for number, form in enumerate(self._seen.gives[INPUT].leaves)]
        try:
            with self.over(model):
                result = scores_of(model, *given)
        except _Ended as ended:
            if ended.run is not self:  # the model has parts of another one
                raise
            return None
        if self._until is not None or not self.own:
            raise LostError((), f"has not called `{(self._until or self._after).name}`")
        if origins := origins_of(result):
            raise LostError(origins, "gives a result that is made of what did not come")
        return result

    def note_used(self, name: str) -> None:
        """Take the name of a parameter or buffer that is used."""
        if self.own:
            self.used.add(name)

    def call(self, key: Key, module: nn.Module, compute: Callable[[], Any]) -> Any:
        if is_open(key, self._ends) or (self.own and self._like.is_meta):
            with self.inside(key):
                value = compute()
        elif self.own or key in self._seen.again:
            with self.unwatched():
                value = compute()
        else:
            with pop_mode():
                return self._given(key)
        if self.own:
            self._keep(key, value)
        else:
            self.again.add(key)
        return value

    def function(self, key: Key, name: str, given: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        if name in READS and self._is_known(key, given):
            return self._number(key, name)
        if self.own:
            value = compute()
            if name in READS:
                self.reads[key] = value
            else:
                self._keep(key, value)
            return value
        if name in READS and origins_of(given):
            self.asked.add(key)
            return self._number(key, name)
        if key in self._seen.gives:
            return self._given(key)
        value = compute()
        if key in self._seen.again:
            self.again.add(key)
        elif any(isinstance(each, torch.Tensor) and not isinstance(each, Unused) for each in tree_leaves(value)):
            raise LostError((), f"calls `{name}` before the cut, as it never did when it was cut")
        return value

    def _is_known(self, key: Key, given: tuple[Any, ...]) -> bool:
        """Whether a step gives the number that it read when the model was recorded: of a tensor that came without
        values, as in a trial of a cut, or where operations are counted."""
        if self._like.is_meta and key in self.reads:
            return True
        return any(isinstance(each, Unused) and not each.origins for each in tree_leaves(given))

    def _number(self, key: Key, name: str) -> Any:
        """What a step read of a tensor."""
        if key not in self.reads:
            raise LostError((), f"reads a number by `{name}`, as it never did when it was cut")
        return _TYPES.get(name, type(self.reads[key]))(self.reads[key])

    def _given(self, key: Key) -> Any:
        """What a step before the first cut gave."""
        gives = self._seen.gives.get(key)
        if gives is None:
            raise LostError((), f"calls `{name_of(key)}` before the cut, as it never did when it was cut")
        self.asked.add(key)
        value = tree_unflatten([self.leaf((key, index), leaf) for index, leaf in enumerate(gives.leaves)], gives.tree)
        if key == self._after.key:
            self.own = True
        return value

    def leaf(self, leaf: Leaf, form: Any) -> Any:
        if leaf in self._came:
            tensor = self._came[leaf]
            tensor = tensor.detach() if leaf in self._after.fixed else tensor
            return tensor.clone() if leaf in self._after.clones else tensor
        if not isinstance(form, Sizes):
            return form
        return Unused.like(form.at(*self._sizes, self._like.dtype), [leaf], self._like.device)

    def _keep(self, key: Key, value: Any) -> None:
        gives = self._next.gives.get(key)
        if gives is not None:
            leaves = tree_leaves(value)
            if not torch.compiler.is_exporting():
                self._require_expected(key, leaves, gives)
            for index, each in enumerate(leaves):
                if isinstance(each, torch.Tensor) and (key, index) in self._next.travels:
                    self.kept[key, index] = each
        if self._until is not None and key == self._until.key:
            raise _Ended(self)

    def _require_expected(self, key: Key, leaves: list[Any], gives: Gives) -> None:
        """Raise LostError where a step gives what the part after this one does not know of."""
        found = [tuple(each.shape) if isinstance(each, torch.Tensor) else each for each in leaves]
        expected = [
            tuple(size.at(*self._sizes) for size in form.sizes) if isinstance(form, Sizes) else form
            for form in gives.leaves
        ]
        if len(found) != len(expected) or not all(map(is_equal, found, expected)):
            raise LostError(
                (), f"gives after `{name_of(key)}` what it never gave when it was cut, as sizes that depend on values"
            )


def asked_by(error: LostError) -> str:
    """What asks for values, and what did not come."""
    steps = [name_of(key) for key, _ in error.origins if isinstance(key, tuple)]
    names = sorted(steps or [str(key) for key, _ in error.origins])
    return str(error) + (f": `{names[0]}`" if any(names) else ": its samples" if names else "")


_TYPES: dict[str, type] = {"__bool__": bool, "__float__": float, "__index__": int, "__int__": int}


class Part(nn.Module):
    """The steps of a model from one cut to another, as an encoder or, after the last cut, as a head. Its parameters
    have the names that they have in the whole model.

    Its other attributes have names that no model has: torch finds submodules by attributes when it exports.
    """

    alray_draws = True
    """A function of the model may draw random numbers without a layer that says so."""
    alray_takes_message = True
    """It is called with all that comes from the part before, by name, and gives all that goes on."""
    alray_models: tuple[nn.Module, ...] = ()
    """The model, which computes with the tensors of this module, and is no submodule."""

    def __init__(
        self,
        model: nn.Module,
        after: Cut,
        until: Cut | None,
        *,
        title: str,
        reads: Mapping[bool, Mapping[Key, float]],
        hidden: Collection[str] = (),
        frozen: Collection[str] = (),
    ) -> None:
        """
        Args:
            model: see `skeleton`. It becomes the part's own.
            until: None for the result.
            title: of the model, in errors.
            reads: the numbers that the whole model read when it was recorded, by whether it trained.
            hidden: paths of modules that other parts compute.
            frozen: paths of modules that compute as in evaluation.
        """
        super().__init__()
        self._alray_after, self._alray_until = after, until
        self.alray_title, self._alray_reads = title, reads
        self._alray_frozen = tuple(f"{path}." for path in frozen)
        if until is not None:
            self.alray_pooling = until.pooling
        self._alray_hidden = frozenset(hidden)
        for path in hidden:
            vars(model.get_submodule(path))["_load_from_state_dict"] = _nothing_loaded
        self.alray_models = (model,)  # a tuple, so that it is no submodule
        self._parameters, self._buffers, self._modules = model._parameters, model._buffers, model._modules
        self._non_persistent_buffers_set = model._non_persistent_buffers_set

    def named_modules(
        self, memo: set[nn.Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Module]]:
        """Without those that other parts compute."""
        start = f"{prefix}." if prefix else ""
        for name, module in super().named_modules(memo, prefix, remove_duplicate):
            if name.removeprefix(start) not in self._alray_hidden or module is self:
                yield name, module

    def train(self, mode: bool = True) -> Part:
        """As the model's own `train`. Batch normalisation and dropout of frozen modules stay as in evaluation."""
        self.training = mode
        (model,) = self.alray_models
        model.train(mode)
        for path, module in model.named_modules():
            if f"{path}.".startswith(self._alray_frozen):
                module.eval()
        return self

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Part:
        """Tensors that modules have as plain attributes go to the device too."""
        for module, name, value in plain_tensors(self):
            vars(module)[name] = fn(value)
        super()._apply(fn, recurse)
        return self

    def forward(self, incoming: Tensors) -> Tensors:
        """What goes on to the next part, by name: `s`, further tensors that are needed later, and the mask of a text
        while `s` is a sequence; of the last part, the scores as `s`.

        Raises StageError where a mini-batch needs what other ones did not.
        """
        if self._alray_until is not None and self._alray_until.key == INPUT:
            return {name: incoming[name] for name in ("s", "mask") if name in incoming}
        try:
            return self._passed(incoming)
        except LostError as error:
            message = f"`forward` of {self.alray_title} {asked_by(error)}"
            hint = "cut the model elsewhere, by model.cut; or put what `forward` does there into a module of its own"
            raise StageError.of((own_problem(error, message, hint=hint) or Problem(message, hint),)) from error

    def _passed(self, incoming: Tensors) -> Tensors:
        (model,), after, until = self.alray_models, self._alray_after, self._alray_until
        s, mask = incoming["s"], incoming.get("mask")
        seen = after.seen[self.training]
        came = {
            leaf: _unpacked(incoming[name], after.travels[leaf])
            for leaf, name in after.names.items()
            if leaf in seen.travels
        }
        read: dict[Key, float] = {}
        if s.is_meta:  # where operations are counted
            read = {**self._alray_reads[self.training], **after.reads}
        elif after.reads:
            numbers = zip(after.reads, incoming[_READ][0].view(torch.float64).tolist(), strict=True)
            read = {key: number for key, number in numbers if not math.isnan(number)}
        if mask is not None:
            came[INPUT, 1] = mask
        positions = int(read[POSITIONS]) if POSITIONS in read else self._positions(came, s.shape[0])
        came |= {leaf: came[other] for leaf, other in seen.same.items()}
        run = PartRun(
            after,
            until,
            came,
            training=self.training,
            sizes=(s.shape[0], positions),
            read=read,
            like=s if s.is_floating_point() else torch.empty((), device=s.device),
        )
        with _left_calls_forgotten() if torch.compiler.is_exporting() else nullcontext():
            result = run.of(model)
        if until is None:
            return {"s": result}
        outgoing = {}
        for leaf, name in until.names.items():
            if leaf not in until.seen[self.training].travels:
                continue
            if isinstance(run.kept.get(leaf), (Unused, type(None))):
                raise LostError([leaf], "needs later what did not come")
            if leaf in until.gradients and run.kept[leaf].requires_grad and not torch.compiler.is_compiling():
                run.kept[leaf].register_hook(partial(_lying, order=until.gradients[leaf]))
            outgoing[name] = packed(run.kept[leaf], until.travels[leaf], s.shape[0])
        if until.reads:
            run.reads[POSITIONS] = positions
            of_reads = [[float(run.reads.get(key, math.nan)) for key in until.reads]]
            outgoing[_READ] = torch.tensor(of_reads, dtype=torch.float64, device=s.device)
            outgoing[_READ] = outgoing[_READ].view(torch.int64).repeat(s.shape[0], 1)
        if mask is not None and outgoing["s"].ndim > 2:
            outgoing["mask"] = mask
        return outgoing

    def _positions(self, came: Mapping[Leaf, torch.Tensor], samples: int) -> int:
        """How many positions the samples of a mini-batch have."""
        if (INPUT, 1) in came:
            return came[INPUT, 1].shape[1]
        for leaf, tensor in came.items():
            for size, number in zip(self._alray_after.travels[leaf].sizes, tensor.shape, strict=True):
                if size.by_positions:
                    return (number - size.more) // size._replace(more=0).at(samples, 1)
        return 1  # each has one, or no size depends on it


@contextmanager
def _left_calls_forgotten() -> Iterator[None]:
    """Has torch.export forget the calls of modules that `_Ended` leaves, as it forgets those that return."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode  # slow to load

    mode = get_proxy_mode()
    calls = {} if mode is None else mode.tracer.module_stack
    began = len(calls)
    yield
    while len(calls) > began:
        calls.popitem()


def joined(parts: Sequence[Part]) -> Part:
    """One part that computes what these compute, which follow each other from the input on, with their tensors."""
    whole = copy.deepcopy(parts[0])
    (model,) = whole.alray_models
    for part in parts[1:]:
        for name, tensor in named_tensors(part):
            path, _, last = name.rpartition(".")
            there = model.get_submodule(path)
            vars(there).pop(last, None)
            if isinstance(tensor, nn.Parameter):
                there._parameters[last] = tensor
            else:
                there._buffers[last] = tensor
    whole._alray_hidden = frozenset.intersection(*(part._alray_hidden for part in parts))
    whole._alray_until = parts[-1]._alray_until
    return whole


def packed(tensor: torch.Tensor, sizes: Sizes, samples: int) -> torch.Tensor:
    """A tensor as it travels: with one row for each sample, `[N, ...]`."""
    if sizes.rows:
        tensor = tensor.movedim(sizes.rows, 0)
    return tensor.unflatten(0, (samples, -1)) if sizes.has_several_rows else tensor


def _unpacked(rows: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    """The tensor that was packed so."""
    tensor = rows.flatten(0, 1) if sizes.has_several_rows else rows
    if sizes.rows:
        tensor = tensor.movedim(0, sizes.rows)
    return _lying(tensor, sizes.order)


def _lying(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """The same values in another memory layout, that of the whole model: dropout draws in the order of memory, and
    kernels may add in it.

    Args:
        order: its dimensions, from the largest stride to the smallest.
    """
    if order == tuple(range(tensor.ndim)):
        return tensor
    back = [order.index(axis) for axis in range(tensor.ndim)]
    return tensor.permute(order).contiguous().permute(back)


def packed_shape(sizes: Sizes, positions: int) -> tuple[int, ...]:
    """The shape of one sample of what travels."""
    assert sizes.rows is not None
    shape = [size.at(1, positions) for size in sizes.sizes]
    rows = shape.pop(sizes.rows)
    return (*([rows] if sizes.has_several_rows else []), *shape)


def _in_full(dtype: torch.dtype) -> torch.dtype:
    """The type in which a tensor travels that is computed in mixed precision."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


def _nothing_loaded(*given: Any) -> None:
    """In place of how a module of another part would take its weights: batch normalisation asks for some by itself."""


def skeleton(model: nn.Module, own: Collection[str], others: Collection[str], shared: Mapping[int, Any]) -> nn.Module:
    """A copy of a model, with the parameters and buffers of one part.

    Args:
        own: their names.
        others: names of those that have no values in it. Further buffers do, which no checkpoint needs to hold.
        shared: what stands for a parameter in place of a copy, by its identity.
    """
    memo: dict[int, Any] = dict(shared)
    for name, value in named_tensors(model):
        if name in others:
            memo[id(value)] = Unused.like(Form.of(value), [(name, None)], value.device)
    copied = copy.deepcopy(model, memo)
    for path, module in copied.named_modules():
        every: tuple[dict[str, Any], ...] = module._parameters, module._buffers
        for held in every:
            for name, value in list(held.items()):
                if isinstance(value, Unused):
                    vars(module)[name] = held.pop(name)
        further = {name for name in module._buffers if f"{path}.{name}".removeprefix(".") not in own}
        module._non_persistent_buffers_set |= further
    return copied


def plain_tensors(model: nn.Module) -> list[tuple[nn.Module, str, torch.Tensor]]:
    """The tensors that modules have as plain attributes, each with its module and its name there. Without those that
    torch computes from weights."""
    tops = [each for module in model.modules() for each in getattr(module, "alray_models", (module,))]
    modules = dict.fromkeys(each for top in tops for each in top.modules())
    return [
        (module, name, value)
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor) and value.is_leaf and not value.requires_grad
    ]


def on_meta(part: nn.Module) -> nn.Module:
    """A copy of a part without values. Its forward finds shapes."""
    memo: dict[int, Any] = {}
    for each in (*part.parameters(), *part.buffers(), *(value for _, _, value in plain_tensors(part))):
        empty = torch.empty_like(each, device="meta")
        memo[id(each)] = nn.Parameter(empty, each.requires_grad) if isinstance(each, nn.Parameter) else empty
    copied = copy.deepcopy(part, memo)
    for module in copied.modules():
        if isinstance(module, BatchNorm) and module.momentum is None:
            module.momentum = 0.0  # it would read the value of its counter; no shape depends on it
    return copied
