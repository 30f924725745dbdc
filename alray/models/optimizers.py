"""Optimizers of one component. `fused` and `foreach` are fixed, so that no heuristic of torch changes the bits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import nn

from alray.config.made import Load, class_of, code_of, making, no_user_code
from alray.config.sections.optimizer import OPTIMIZERS, ForeignSection, OptimizerSection
from alray.config.sections.own_code import OwnCode
from alray.config.user_code import named
from alray.core.accelerator import is_accelerator
from alray.core.compat import tree_map
from alray.core.errors import SpecError
from alray.models.delayed_weights import DelayedWeights
from alray.models.gradients import separate_gradients


class Role(NamedTuple):
    """The position of a parameter in its component."""

    part: str = ""
    """Name of the part: f, head, ..."""
    hidden: bool = True
    """Whether it belongs to a hidden layer, and neither to an embedding nor to a classifier."""
    apart: bool = False
    """Whether its gradients are clipped apart from those of the other parts (`Component.apart`)."""
    name: str = ""
    """Its name in a checkpoint of the component."""


@dataclass(frozen=True)
class Chosen:
    """An optimizer of torch for some parameters of a component.

    Attributes:
        settings: further arguments of its constructor.
        rate_factor: by which the rate of these parameters is multiplied.
    """

    kind: Any  # a class derived from torch.optim.Optimizer
    parameters: Sequence[nn.Parameter]
    settings: dict[str, Any]
    rate_factor: float = 1.0


@dataclass(frozen=True)
class Recipe:
    """What makes the optimizers of a component: the section of the spec, and the code that chooses."""

    section: OptimizerSection
    choose: Callable[[Any, Sequence[nn.Parameter], Mapping[nn.Parameter, Role]], list[Chosen]]

    @property
    def title(self) -> str:
        """Of the optimizer, in errors."""
        return f"optimizer `{getattr(self.section, 'name', self.section.kind)}`"


_OF_ALRAY = frozenset({"params", "lr", "foreach", "rate_factor", "weight_decay"})
"""Values of a group that alray sets."""


class Accumulation:
    """The mean of the gradients of several mini-batches, for one update.

    Without batch normalisation, and with losses that are means over samples, it equals the gradient of one mini-batch
    of all their samples, if the mini-batches are of one size. The sum is kept apart from `parameter.grad`, so that a
    backward pass need not know of it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], mini_batches: int) -> None:
        """
        Args:
            mini_batches: per update, at least 1; with 1 nothing is kept and nothing is copied.
        """
        self.mini_batches = mini_batches
        self._parameters = list(parameters)
        self._sums: dict[int, torch.Tensor] = {}
        self._gathered = 0

    def gather(self, weight: float = 1.0) -> bool:
        """Take the gradients of one mini-batch, times `weight`, from the parameters; return whether an update is due.

        If it is due, the parameters' gradients are now the mean; if not, they are None. With one mini-batch an update
        nothing happens, and nothing is multiplied.
        """
        if self.mini_batches == 1:
            return True
        separate_gradients(self._parameters)
        for index, parameter in enumerate(self._parameters):
            gradient, parameter.grad = parameter.grad, None
            if gradient is None:
                continue
            if weight != 1.0:
                gradient = gradient * weight  # not in place: a backward pass that goes on may need its memory
            if index in self._sums:
                self._sums[index].add_(gradient)
            else:
                self._sums[index] = gradient  # no copy: the next backward pass makes a new tensor
        self._gathered += 1
        if self._gathered < self.mini_batches:
            return False
        for index, total in self._sums.items():
            self._parameters[index].grad = total.div_(self.mini_batches)
        self._sums = {}
        self._gathered = 0
        return True

    def state_dict(self) -> dict[str, Any]:
        """The number of mini-batches since the last update and the sums of their gradients; empty if there are none."""
        return {"mini_batches": self._gathered, "gradients": dict(self._sums)} if self._gathered else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._gathered = state.get("mini_batches", 0)
        self._sums = {
            index: gradient.to(self._parameters[index].device, self._parameters[index].dtype, copy=True)
            for index, gradient in state.get("gradients", {}).items()
        }

    def clear_sums(self) -> None:
        """Leave the gradients to another replica; the number of mini-batches stays."""
        self._sums = {}

    def add(self, gradients: dict[int, torch.Tensor]) -> None:
        """Add the sums that another replica gathered over the same mini-batches."""
        for index, gradient in gradients.items():
            own = self._sums.get(index)
            moved = gradient.to(self._parameters[index].device, self._parameters[index].dtype, copy=True)
            self._sums[index] = moved if own is None else own.add_(moved)


class ComponentOptimizer:
    """An optimizer over some parameters of one component; without parameters it does nothing.

    For every mini-batch the order is `zero_grad`, the backward pass, `step`. With `accumulate: n` only every n-th
    `step` updates, by the mean of n gradients. Replicas that average gradients call `gather` before `step`.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], recipe: Recipe, roles: Mapping[nn.Parameter, Role] | None = None
    ) -> None:
        """
        Args:
            roles: of the parameters; None: all are of hidden layers.
        """
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._recipe = recipe
        self._roles = roles or {}
        optimizer = recipe.section
        self.kind: str = optimizer.kind
        self.clip_norm: float | None = optimizer.clip_norm
        self._clipped = [
            [each for each in self.parameters if self._roles.get(each, Role()).apart == apart]
            for apart in (False, True)
        ]
        """The parameters whose gradients are clipped together."""
        self.accumulation = Accumulation(self.parameters, optimizer.accumulate)
        self.delayed: DelayedWeights | None = None
        """The versions of the weights, where gradients are an update late; None: there is one."""
        self._due: bool | None = None  # whether the gathered mini-batch completes an update; None: not gathered yet
        built = _build(self.parameters, recipe, self._roles)
        self._optimizers = [optimizer for optimizer, _ in built]
        self._settings = [settings for _, settings in built]
        self._class: str | None = None
        """The name of a class that is not alray's. None: the kind says which it is."""
        if isinstance(optimizer, ForeignSection):
            self._class = " and ".join(dict.fromkeys(type(each).__name__ for each in self._optimizers))
        self._names = [self._roles[parameter].name for parameter in self.parameters if parameter in self._roles]
        # Optimizers number parameters by groups; checkpoints, by their order in the component.
        numbers = {parameter: number for number, parameter in enumerate(self.parameters)}
        self._numbers = [
            [[numbers[parameter] for parameter in group["params"]] for group in each.param_groups]
            for each in self._optimizers
        ]

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def delay(self) -> None:
        """From here on gradients are an update late, so that there are two versions of the weights. Without parameters
        nothing is ever updated, and there are none."""
        if self._optimizers:
            self.delayed = DelayedWeights(self.parameters)

    @property
    def may_draw(self) -> bool:
        """Whether an update may draw random numbers: an optimizer of the user may."""
        return bool(self._optimizers) and isinstance(self._recipe.section, OwnCode)

    @property
    def accumulates(self) -> bool:
        """Whether an update takes the gradients of more than one mini-batch."""
        return self.accumulation.mini_batches > 1

    def gather(self, weight: float = 1.0) -> bool:
        """Add the gradients of the last backward pass; return whether the next `step` will update.

        If it will, the parameters' gradients are those of the update, and may be averaged over replicas; if not, they
        are None.

        Further calls for the same mini-batch change nothing. `step` calls it if nobody has.

        Args:
            weight: the replica's share, of 1, of this mini-batch, which gradients that wait are multiplied by.
        """
        if self._due is None:
            self._due = self.accumulation.gather(weight)
        return self._due

    def step(self, lr: float) -> bool:
        """Update at this rate if the mini-batch completes an update; gradients are clipped to `clip_norm` first.
        Returns whether weights were updated. Raises UserCodeError if an optimizer that is not alray's raises an error.
        """
        due, self._due = self.gather(), None
        if not self._optimizers:
            return False
        if self.delayed is not None:
            self.delayed.update(partial(self._update, lr) if due else None)
        elif due:
            self._update(lr)
        return due

    def _update(self, lr: float) -> None:
        if self.clip_norm is not None:
            for together in self._clipped:
                separate_gradients(together)
                nn.utils.clip_grad_norm_(together, self.clip_norm, foreach=False)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * group["rate_factor"]
            if isinstance(self._recipe.section, ForeignSection):
                with named(self._recipe.title, "an update", key="optimizer"):
                    optimizer.step()
            else:
                optimizer.step()

    def update_as_on(self, device: torch.device) -> None:
        """Update as an optimizer does that was made on this device.

        A GPU updates many parameters with one kernel, for which Adam takes memory of the size of all of them.
        """
        for group in (group for optimizer in self._optimizers for group in optimizer.param_groups):
            if "foreach" in group:
                group["foreach"] = is_accelerator(device) and not group.get("fused")

    def update_at_every_step(self) -> None:
        """Let no gradient wait for those of further mini-batches, so that one step shows what an update takes."""
        self.accumulation = Accumulation(self.parameters, 1)

    def on_zeros(self) -> ComponentOptimizer:
        """The same optimizer on the CPU, of parameters of the same shapes that are zero, with gradients of zero, which
        updates at every step."""
        with torch.device("cpu"):
            zeros = [nn.Parameter(torch.zeros(each.shape, dtype=each.dtype)) for each in self.parameters]
            for zero in zeros:
                zero.grad = torch.zeros_like(zero)
            roles = {zero: self._roles.get(each, Role()) for zero, each in zip(zeros, self.parameters, strict=True)}
            same = ComponentOptimizer(zeros, self._recipe, roles)
        same.update_at_every_step()
        return same

    def state_dict(self) -> dict[str, Any]:
        """The state of the optimizer, with its kind, and with the name of its class where that is not alray's; empty
        without parameters. Parameters are numbered in their order
        in the component, however they are grouped; `names` has their names, if roles were given.

        `besides` has for each of torch's optimizers what its class adds to torch's state. It is left out where no class
        does.
        """
        if not self._optimizers:
            return {}
        state: dict[int, Any] = {}
        groups, besides = [], []
        for optimizer, numbers in zip(self._optimizers, self._numbers, strict=True):
            held = optimizer.state_dict()
            in_order = [number for group in numbers for number in group]
            state |= {in_order[index]: value for index, value in held["state"].items()}
            groups += [{**group, "params": its} for group, its in zip(held["param_groups"], numbers, strict=True)]
            besides.append({key: value for key, value in held.items() if key not in ("state", "param_groups")})
        waiting = self.accumulation.state_dict()
        return {
            "kind": self.kind,
            **({"class": self._class} if self._class is not None else {}),
            **({"names": self._names} if self._names else {}),
            "state": dict(sorted(state.items())),
            "param_groups": groups,
            **({"besides": besides} if any(besides) else {}),
            **({"accumulation": waiting} if waiting else {}),
            **({"delayed": self.delayed.state_dict()} if self.delayed is not None else {}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave: moments, step counts, values of groups that are no arguments of the
        optimizer's constructor, gradients that wait for their update, and versions of the weights besides the newest,
        which the parameters have already.

        Rate, decay and other settings stay those of the spec, which a resume may have changed; `foreach` stays that of
        this device. Raises ValueError if the state is of another kind of optimizer, or of other parameters.
        """
        if not self._optimizers:
            return
        self.require_state(state)
        besides = state.get("besides") or [{} for _ in self._optimizers]
        # If a resume groups parameters otherwise, a group continues as that of its first parameter.
        saved = {number: group for group in state["param_groups"] for number in group["params"]}
        for number, optimizer in enumerate(self._optimizers):
            own = {each for its in self._numbers[number] for each in its}
            of_spec = _OF_ALRAY | self._settings[number].keys() | inspect.signature(type(optimizer)).parameters.keys()
            groups = [
                {**group, **_moved(_without(saved[its[0]], of_spec), self.parameters[its[0]].device), "params": its}
                for group, its in zip(optimizer.state_dict()["param_groups"], self._numbers[number], strict=True)
            ]
            of_own = {each: value for each, value in state["state"].items() if each in own}
            _load(optimizer, {"state": of_own, "param_groups": groups, **besides[number]})
        self.accumulation.load_state_dict(state.get("accumulation", {}))
        if self.delayed is not None:
            self.delayed.load_state_dict(state.get("delayed", {}))

    def require_state(self, state: dict[str, Any]) -> None:
        """Raise ValueError if `load_state_dict` cannot take over this state: if it is of another kind of optimizer, or
        of other parameters, or if as many gradients wait in it as an update now takes, or more."""
        if not self._optimizers:
            return
        if not state:
            raise ValueError("none of its parameters was trained")
        if state.get("kind") != self.kind:
            raise ValueError(f"the state is that of {state.get('kind')}, the optimizer is {self.kind}")
        if (of := state.get("class")) != self._class:
            raise ValueError(f"the state is that of {of}, the optimizer is {self._class}")
        waiting, together = state.get("accumulation", {}).get("mini_batches", 0), self.accumulation.mini_batches
        if waiting >= together:
            raise ValueError(f"it holds the gradients of {waiting} mini-batches, and an update now takes {together}")
        saved = sum(len(group["params"]) for group in state["param_groups"])
        if saved != len(self.parameters):
            raise ValueError(f"the state is that of {saved} parameters, the optimizer has {len(self.parameters)}")
        names = zip(state.get("names", ()), self._names, strict=True)
        other = next((pair for pair in names if pair[0] != pair[1]), None)
        if other is not None:
            raise ValueError(f"the state is that of `{other[0]}`, the optimizer has `{other[1]}` in its place")

    def state_bytes(self) -> int:
        """Bytes that the optimizer keeps between two updates, without the counts of steps: for each value of a
        parameter two values with Adam, one with momentum, none with plain SGD; and gradients that wait for their
        update.

        Raises SpecError if it cannot update a parameter as alray calls it.
        """
        kept: int = self.accumulates * sum(_bytes(parameter) for parameter in self.parameters)
        with self.updating():
            values = [
                (parameter.numel(), _bytes_kept(type(optimizer), settings, group, parameter.dtype))
                for optimizer, settings in zip(self._optimizers, self._settings, strict=True)
                for group in optimizer.param_groups
                for parameter in group["params"]
            ]
            if all(of_one is not None for _, of_one in values):
                kept += sum(number * of_one for number, of_one in values if of_one is not None)
                return kept
            same = self.on_zeros()
            same.step(0.0)
        kept += sum(
            value.nbytes
            for optimizer in same._optimizers
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor)
        )
        return kept

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Inside, what an optimizer raises in an update becomes a SpecError."""
        called = "alray calls its step(), without a function, after a backward that leaves a dense gradient"
        with making(self._recipe.title, called, key="optimizer", fault="cannot update"):
            yield


def _load(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a state, each value of which keeps its type.

    torch's `load_state_dict` moves what a parameter's state holds to the device of the parameter. It also casts it to
    the type of the parameter, `step` excepted, and makes another text of a text. So the saved values are put in place
    of those that it made, at the end of torch's own method: what a class does around that stays.
    """
    given: list[dict[str, Any]] = []

    def put_back(_: torch.optim.Optimizer) -> None:
        (saved,) = given
        numbers = [number for group in saved["param_groups"] for number in group["params"]]
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for number, parameter in zip(numbers, parameters, strict=True):
            now = optimizer.state[parameter] if number in saved["state"] else {}
            for key, value in saved["state"].get(number, {}).items():
                if key != "step" and type(now.get(key)) is type(value):
                    now[key] = _moved(value, parameter.device)

    hooks = [
        optimizer.register_load_state_dict_pre_hook(lambda _, loaded: given.append(loaded)),
        optimizer.register_load_state_dict_post_hook(put_back),
    ]
    try:
        optimizer.load_state_dict(state)
    finally:
        for hook in hooks:
            hook.remove()


def _without(group: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in keys}


def _moved(value: Any, device: torch.device) -> Any:
    """The value with the tensors in it on a device."""
    return tree_map(lambda each: each.to(device) if isinstance(each, torch.Tensor) else each, value)


def _bytes(parameter: nn.Parameter) -> int:
    return parameter.numel() * parameter.element_size()


def _bytes_kept(kind: Any, settings: dict[str, Any], group: dict[str, Any], dtype: torch.dtype) -> int | None:
    """Bytes that an optimizer keeps for each value of a parameter of a group, found by an update of a small one; None
    if that depends on the shape of the parameter.

    Args:
        settings: that it was made with. It may keep some of them outside its groups.
    """
    with torch.device("cpu"):
        small = nn.Parameter(torch.zeros(4, 4, dtype=dtype))
        small.grad = torch.zeros_like(small)
        own = {key: value for key, value in group.items() if key not in ("params", "foreach")}
        optimizer = kind([{"params": [small], **own}], lr=group["lr"], **settings)
        optimizer.step()
    kept = [each for each in optimizer.state[small].values() if isinstance(each, torch.Tensor) and each.ndim]
    if any(each.shape != small.shape for each in kept):
        return None
    size: int = sum(each.element_size() for each in kept)
    return size


@cache
def without_compiler(kind: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """The same optimizer, which does not load torch's compiler: that takes every process more than a second.

    alray compiles no optimizer. torch wraps these methods only to keep the compiler out of them, and to turn gradients
    off in `step`.
    """
    methods = {
        name: inspect.unwrap(getattr(kind, name)) for name in ("add_param_group", "state_dict", "load_state_dict")
    }
    return type(kind.__name__, (kind,), {**methods, "step": torch.no_grad()(inspect.unwrap(kind.step))})


def kernels(parameters: Sequence[nn.Parameter], *, fused: bool | None = None) -> dict[str, bool]:
    """How torch's optimizers update: with a kernel for all parameters on a GPU, and with one that does it all where the
    spec asks for it.

    Args:
        fused: None: the optimizer has no such kernel.
    """
    device = parameters[0].device
    together = is_accelerator(device)
    if fused is None:
        return {"foreach": together}
    fused = fused and device.type != "meta"  # there torch fuses nothing
    return {"foreach": together and not fused, "fused": fused}


def recipe(section: OptimizerSection, load: Load = no_user_code) -> Recipe:
    """What makes the optimizers of components. Raises SpecError if a class of the user is no optimizer."""
    if not isinstance(section, OwnCode):
        return Recipe(section, code_of(OPTIMIZERS, section, load))
    kind = class_of(OPTIMIZERS, section, torch.optim.Optimizer, load, key="optimizer.kind")
    return Recipe(section, lambda own, parameters, roles: [Chosen(kind, parameters, own.fields)])


def _build(
    parameters: Sequence[nn.Parameter], recipe: Recipe, roles: Mapping[nn.Parameter, Role]
) -> list[tuple[torch.optim.Optimizer, dict[str, Any]]]:
    """The optimizers of these parameters, each with the settings that it was made with; none without parameters. Each
    has a group for parameters of the same rate and weight decay. Raises SpecError if one does not take its settings, or
    has no weight decay and the spec asks for it."""
    if not parameters:
        return []
    spec = recipe.section
    made: list[tuple[torch.optim.Optimizer, dict[str, Any]]] = []
    for each in recipe.choose(spec, parameters, roles):
        groups: dict[tuple[float, float | None], list[nn.Parameter]] = {}
        for parameter in each.parameters:
            factor = each.rate_factor * spec.rate_factors.get(roles.get(parameter, Role()).part, 1.0)
            decay: float | None = spec.weight_decay if spec.decays(parameter.ndim) else 0.0
            groups.setdefault((factor, decay), []).append(parameter)
        described = [
            {"params": those, "rate_factor": factor, **({} if decay is None else {"weight_decay": decay})}
            for (factor, decay), those in groups.items()
        ]
        if described:
            called = "it is called as Class(groups, lr=lr, **fields) with the further keys of the section `optimizer`"
            with making(recipe.title, called, key="optimizer"):
                optimizer = without_compiler(each.kind)(described, lr=spec.lr, **each.settings)
            _require_decay(optimizer, recipe)
            made.append((optimizer, each.settings))
    return made


def _require_decay(optimizer: torch.optim.Optimizer, recipe: Recipe) -> None:
    """Raise SpecError if the spec asks for a weight decay that the optimizer does not know: it would be ignored."""
    spec = recipe.section
    leaves_out = not spec.decays(0)
    if (spec.weight_decay or leaves_out) and "weight_decay" not in optimizer.defaults:
        raise SpecError(
            f"{recipe.title} has no weight decay",
            key="optimizer.weight_decay" if spec.weight_decay else "optimizer.decay",
            hint="leave this key out; a class has one if `weight_decay` is among the defaults that it gives "
            "torch.optim.Optimizer",
        )
