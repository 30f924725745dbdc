"""A whole model that a spec names, with its first weights; how it is cut into parts is up to a subclass."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from pickle import UnpicklingError
from textwrap import shorten
from types import CellType, FunctionType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from alray.config.sections.model import TRANSFORMERS
from alray.config.sections.own_code import OBJECT
from alray.config.sections.section import did_you_mean, listed, nearest
from alray.core.counting import counted
from alray.core.errors import FAULTS_OF_USER_CODE, SpecError
from alray.models.encoder import PartEnds
from alray.models.imported.calls import copy_of, takes_documents
from alray.models.imported.choice import Choice, list_of_layers
from alray.models.imported.cutting import Cutter, Refused
from alray.models.imported.identity import module_sha256
from alray.models.imported.part import Cut, Part
from alray.models.imported.proof import fault_of, prove, refusal
from alray.models.imported.sources import named_weights
from alray.models.imported.steps import INPUT, name_of
from alray.models.several import OF_MODEL
from alray.models.shape import Shape

_NOWHERE = "its input"
"""The end of the one component of a model that is not cut: all of the model is its classifier."""
_MOST_LEFT_OUT = 0.5
"""Of the work before the last layer, what components with readouts of their own may leave out."""
_CHOICES = 6
"""How often cuts are chosen: again where a proof refuses them."""
_ONE_TENSOR = "return the scores alone; several outputs in one tensor, as by `torch.cat`, for a `loss=` that parts them"
_MOST_NAMED = 12
_MOST_SAID = 400
"""Characters of an error of torch, which may name all weights."""
ADDED = "alray."
"""How the names begin of what an export adds to the weights of a model."""


class GivenModel:
    """A model that `model.from` names, on the CPU, with the weights that its constructor draws or its folder has.

    It is cut into components, and a classifier: all from its last layer with weights on. A model that cannot be cut is
    one component, which passes its samples on, and all of the model is its classifier.
    """

    def __init__(
        self,
        whole: nn.Module,
        source: str,
        arguments: dict[str, Any],
        sample: Shape,
        *,
        freeze: Sequence[str] = (),
        untie: bool = False,
        lowered: bool = False,
    ) -> None:
        """Raises SpecError, also if `forward` takes other inputs than samples have.

        Args:
            source: `torchvision:NAME`, `timm:NAME`, `transformers:NAME` or `python:package.module.Class`.
            arguments: those with which `whole` was made.
            sample: the shape of one sample.
            freeze: names of modules and parameters that no method trains.
            untie: whether each of several names of one parameter gets a copy of its own.
            lowered: whether its parts compute in mixed precision.
        """
        self.title = f"`{source}`"
        if sample.words is not None and not takes_documents(whole):
            raise SpecError(
                f"{self.title} would get documents of different lengths, and their padding, of which its `forward` is "
                "not told",
                key="model.from",
                hint="give its `forward` an argument `mask`, [N, T] bool, or list alray's blocks for text in "
                "`components`",
            )
        self._source = source
        self._arguments = arguments
        self._sample, self._lowered = sample, lowered
        self.whole = whole
        require_copies(whole, "model.from")
        if untie:
            _untie(whole)
        self.frozen = self._freeze(freeze)
        self.sha256 = module_sha256(whole) if source.startswith(OBJECT) else None
        """See `Network.model_sha256`."""
        self.architecture_sha256 = module_sha256(whole, values=False) if source.startswith(OBJECT) else None
        """See `Network.architecture_sha256`."""
        _keep_closures(whole)
        if sample.several is not None:
            setattr(whole, OF_MODEL, sample.several)
        self.notes: list[str] = []
        """Sentences on what was not taken of the initial weights that were given."""
        self.reason = ""
        """Why it is one component, where it could not be cut: a sentence without its subject."""

    @cached_property
    def cutter(self) -> Cutter:
        """A copy of the model, with what it was seen to compute. Raises SpecError."""
        copied = copy_of(self.whole, self.title)
        try:
            cutter = Cutter(copied, self._sample, frozen=self.frozen, lowered=self._lowered)
        except FAULTS_OF_USER_CODE as error:
            raise fault_of(error, type(self.whole), self.title, self._sample, "samples") from error
        result = cutter.recordings[True].result
        if not isinstance(result, torch.Tensor):
            what = f"returns a `{type(result).__name__}`, and not one tensor of scores"
            raise refusal(what, type(self.whole), self.title, hint=_ONE_TENSOR)
        rows = cutter.rows_of_result
        if len(rows) > 1:
            what = "returns scores of each sample with all others of its mini-batch, and not for each sample alone"
            hint = "return what it compares, as by `torch.stack([one, other], 1)`, and compare in a `loss=`"
            raise refusal(what, type(self.whole), self.title, hint)
        if rows and rows != [0]:
            what = f"gives scores whose samples lie along dimension {rows[0]}, and not along the first"
            raise refusal(what, type(self.whole), self.title, hint=f"return `scores.movedim({rows[0]}, 0)`")
        return cutter

    @cached_property
    def _choice(self) -> Choice:
        layers = list_of_layers(self.whole) if self._source.startswith(TRANSFORMERS) else None
        choice = Choice(self.cutter, self.whole, layers)
        if not choice.starts:
            raise SpecError(f"{self.title} has no layer with weights", key="model.from", hint="give another model")
        return choice

    @property
    def cut_points(self) -> list[str]:
        """Names of the steps after which one activation is needed, in order; the last one is before the classifier."""
        return [name_of(step.key) for step in self._choice.single]

    @property
    def last_cut(self) -> str | None:
        """Where the last component ends, unless it leaves the pooling of maps to a readout."""
        end = self._choice.last(pooled=True, several=True)
        return _NOWHERE if end is None else name_of(end.key)

    @property
    def last_layer(self) -> str:
        """The path of the last layer with weights; "" if the model has them itself."""
        return next((name for name, _ in reversed(self._choice.starts[-1].key) if not name.endswith("()")), "")

    def _after(self, name: str) -> Cut:
        """The cut of this name."""
        return self.cutter.after(INPUT if name == _NOWHERE else self._choice.by_name[name].key)

    def cut(
        self, components: int | str, given: Sequence[str] | None, *, several: bool = False, whole: bool = False
    ) -> list[PartEnds]:
        """The components that a spec asks for, which are proved to compute what the whole model computes.

        Raises SpecError.

        Args:
            components: their number, or `auto`: one for each natural unit.
            given: the names after which to cut instead.
            several: whether it may be cut where several activations are needed later, where that is more even.
            whole: whether the model's classifier is used, so that it may be one component, and natural units end with
                the model's pooling of maps. A readout pools by itself, less, and sees more.
        """
        if not several:
            self._choice.take_readouts()
        for _ in range(_CHOICES):
            ends = self._ends(components, given, several=several, pooled=whole)
            if ends is None:
                break
            try:
                self.prove(ends)
            except Refused as refused:
                if given is not None:
                    raise self._refusal_of(listed([f"`{name}`" for name in given], "and"), refused, []) from refused
                self._note_wrong(ends, refused)
            else:
                if not whole and self._is_short(str(ends[-1].until)):
                    break
                return ends
        if not whole or given is not None or components not in ("auto", 1):
            raise self._uncut(components, several=several, whole=whole)
        self.reason = self._why
        ends = [PartEnds(None, _NOWHERE)]
        try:
            self.prove(ends)
        except Refused as refused:
            what = f"computes otherwise when it is called again: {refused}"
            hint = "let it draw from the generators of torch, numpy and random, and keep in buffers what lasts"
            raise refusal(what, type(self.whole), self.title, hint) from refused
        return ends

    @property
    def _why(self) -> str:
        """Why it cannot be cut: a sentence without its subject."""
        if found := self._left_out or self._look or self._choice.reason:
            return found
        if len(self._choice.starts) == 1:
            return "it has one layer with weights"
        start = f"after `{self.cut_points[-1]}` and " if self.cut_points else ""
        needed = "more than one activation is needed, or one without a row for each sample"
        return f"everywhere {start}before its last layer with weights {needed}"

    @cached_property
    def _look(self) -> str:
        """Where its code reads a value before its last layer with weights, so that no later part can end there: a
        sentence, or "" if it does not."""
        last = self._choice.steps[-1:]
        return self.cutter.recordings[True].look_before(last[0].key, last[0].ended) if last else ""

    def _is_short(self, until: str) -> bool:
        """Whether components that end there lack layers with weights before the last one, because the model cannot be
        cut after them: with a readout of a method's own they would be left out."""
        choice = self._choice
        end = choice.by_name[until]
        if choice.layers is not None or not any(start.begun > end.ended for start in choice.starts[:-1]):
            return False
        return bool(self._look or choice.reason) or choice.left_out(end) > _MOST_LEFT_OUT

    @cached_property
    def _left_out(self) -> str:
        """Which layer a mini-batch of training did not call and an evaluation did: a sentence, or "" if none."""
        trained, evaluated = (self.cutter.recordings[training] for training in (True, False))
        called = {step.key for step in trained.steps}
        name = next((name_of(step.key) for step in evaluated.starts() if step.key not in called), None)
        return f"`forward` leaves out `{name}` in training, as where layers are drawn at random" if name else ""

    @property
    def is_tied(self) -> bool:
        """Whether a parameter has several names."""
        return any(len(names) > 1 for names in names_of(self.whole))

    def _uncut(self, components: int | str, *, several: bool, whole: bool) -> SpecError:
        """The refusal of so many components."""
        end = self._choice.last(pooled=True, several=several)
        key, into = "model.from", ""
        hint = (
            "method=backpropagation trains it as it is; else make of each part a module that hands on one tensor, as "
            "by `torch.cat`"
        )
        if end is not None and components != "auto" and (whole or not self._is_short(name_of(end.key))):
            key, most = "model.components", self._choice.most(end, several=several)
            if int(components) > most:
                more = self._choice.most(end, several=True) > most
                return SpecError(
                    f"{self.title} can be cut into at most {counted(most, 'component')} with weights"
                    + (f": {why}" if (why := self._left_out or self._look) else ""),
                    key=key,
                    hint=f"ask for {most} or fewer" + ("; backpropagation has more cut points" if more else ""),
                )
            into = f" into {counted(int(components), 'component')}"
            hint = "ask for fewer, or name the layers after which to cut: model.cut"
        if self.is_tied:
            hint = "set model.untie=true, so that each of several names of a parameter has its own"
        return SpecError(f"{self.title} cannot be cut{into}: {self._why}", key=key, hint=hint)

    def _note_wrong(self, ends: Sequence[PartEnds], refused: Refused) -> None:
        """Note which of these cuts a proof refuses by itself; all of them, if it is none."""
        found: dict[str, Refused] = {}
        names = [part.until for part in ends if part.until is not None]
        for name in names:
            try:
                self.prove([PartEnds(None, name)])
            except Refused as alone:
                found[name] = alone
        for name, why in (found or dict.fromkeys(names, refused)).items():
            self._choice.refuse(self._choice.by_name[name].key, why)

    def _ends(
        self, components: int | str, given: Sequence[str] | None, *, several: bool, pooled: bool
    ) -> list[PartEnds] | None:
        """The components; None: there are not so many."""
        choice = self._choice
        pooled = pooled or given is not None or components != "auto"
        end = choice.last(pooled=pooled, several=several)
        if end is None:
            return None
        if given is not None:
            names = [self._cut_point(name) for name in given]
            order = [choice.by_name[name].ended for name in names]
            if order != sorted(set(order)) or order[-1] >= end.ended:
                raise SpecError(
                    "the cut points must follow each other, before the classifier",
                    key="model.cut",
                    hint=f"the last layers before the classifier end at `{name_of(end.key)}`, always a cut point",
                )
        else:
            chosen = choice.natural(end) if components == "auto" else choice.even(int(components), end, several=several)
            if chosen is None:
                return None
            names = [name_of(step.key) for step in chosen]
        return [PartEnds(after, until) for after, until in pairwise([None, *names, name_of(end.key)])]

    def _cut_point(self, name: str) -> str:
        """The name of a cut point that a user gives. Raises SpecError where the model cannot be cut there."""
        known = self._choice.by_name
        if name not in known:
            meant = nearest(name, known)
            raise SpecError(
                f"{self.title} has no layer `{name}` before its classifier, after which it could be cut",
                key="model.cut",
                hint=did_you_mean(meant, f"cut it after {listed(self.cut_points[:_MOST_NAMED], 'and')}"),
            )
        try:
            self._choice.require(known[name].key)
        except Refused as refused:
            at = known[name].ended
            before = [each for each in self.cut_points if known[each].ended < at][-1:]
            after = [each for each in self.cut_points if known[each].ended > at][:1]
            raise self._refusal_of(f"`{name}`", refused, before + after) from refused
        return name

    def _refusal_of(self, name: str, refused: Refused, instead: Sequence[str]) -> SpecError:
        return SpecError(
            f"{self.title} cannot be cut after {name}: {refused}",
            key="model.cut",
            hint=f"cut it after {listed(list(instead))}" if instead else "choose other layers",
        )

    def part(self, after: str | None, until: str | None, *, shared: nn.Module | None = None) -> Part:
        """The module of what lies between two cut points, with copies of the model's weights.

        Args:
            after: None for the input, and `until`: None for the result.
            shared: a copy of the model whose parameters it has instead.
        """
        begin, end = self._after(after or _NOWHERE), None if until is None else self._after(until)
        return self.cutter.part(shared or self.whole, begin, end, self.title, shared=shared is not None)

    def gives(self, until: str) -> dict[str, Shape]:
        """What travels after a cut point besides the mask of a text, by name: shapes of one sample."""
        return self._after(until).shapes(self._sample[0])

    def prove(self, parts: Sequence[PartEnds]) -> None:
        """Raise Refused if the chain of these parts and the classifier computes otherwise than the whole model, and
        SpecError if no run can have the model."""
        with torch.no_grad():  # weights of a file may have come since it was copied
            for own, value in zip(self.cutter.model.parameters(), self.whole.parameters(), strict=True):
                own.copy_(value)
        whole = copy_of(self.whole, self.title, self.cutter.model.parameters())
        ends = [*parts, PartEnds(parts[-1].until, None)]
        chain = [self.part(*part, shared=whole) for part in ends]
        prove(whole, self.whole, chain, self._sample, self.title, frozen=self.frozen)

    def classifier(self, parts: Sequence[PartEnds]) -> Part:
        """What comes after the last of these components: `[N, *features] -> [N, classes]`."""
        return self.part(parts[-1].until, None)

    def _freeze(self, names: Sequence[str]) -> frozenset[str]:
        """Paths of the modules that stand still, without those below others. Their parameters get no gradient."""
        modules = dict(self.whole.named_modules())
        parameters = dict(self.whole.named_parameters())
        for name in names:
            if name in parameters:
                parameters[name].requires_grad = False
            elif name in modules:
                modules[name].requires_grad_(requires_grad=False)
            else:
                meant = nearest(name, [*modules, *parameters])
                tops = listed([child for child, _ in self.whole.named_children()], "and")
                raise SpecError(
                    f"{self.title} has no module or parameter `{name}`",
                    key="model.freeze",
                    hint=did_you_mean(meant, f"its largest modules are {tops}"),
                )
        return frozenset(name for name in names if name in modules)

    def start_from(self, weights: Path | str) -> None:
        """Take initial weights: from a file with the names of the model, or those that torchvision or timm have under a
        name. The last layer keeps those that were drawn if the given ones have other shapes, as of another number of
        classes. Raises SpecError."""
        if isinstance(weights, Path):
            self._take(_weights_of(weights), f"`{weights}`")
        else:
            self._take(named_weights(self._source, self._arguments, weights), f"`{weights}` of {self.title}")

    def _take(self, given: dict[str, torch.Tensor], title: str) -> None:
        own = self.whole.state_dict()
        last = self.last_layer
        left = {name for name in own if name.startswith(f"{last}.")}
        other_shape = {name for name in left if name in given and own[name].shape != given[name].shape}
        if other_shape:
            given = {name: value for name, value in given.items() if name not in left}
        tied = {name: names for names in names_of(self.whole) for name in names}
        drawn = [name for name in own if name in left and given.keys().isdisjoint(tied.get(name, [name]))]
        if drawn:
            why = "others: for another number of classes" if other_shape else f"none for `{drawn[0]}`"
            what = "weights" if len(drawn) == len(left) else listed(drawn, "and")
            self.notes.append(
                f"the last layer `{last}` begins with {what} drawn by the seed, because {title} has {why}"
            )
        try:
            self.whole.load_state_dict({name: own[name] for name in left} | given)
        except RuntimeError as error:
            raise SpecError(
                f"{title} does not fit {self.title}: {shorten(str(error), _MOST_SAID)}",
                key="model.weights",
                hint="give a state dict of the same model, made with the arguments in `with`",
            ) from error


class _Closure:
    """A function in an attribute of a module. In a copy of the module it uses the layers of the copy."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._function(*given, **named)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Closure:
        of = self._function
        cells = tuple(CellType() for _ in of.__closure__ or ())
        copied = FunctionType(of.__code__, of.__globals__, of.__name__, of.__defaults__, cells)
        copied.__kwdefaults__ = of.__kwdefaults__
        found = memo[id(self)] = _Closure(copied)
        for cell, original in zip(cells, of.__closure__ or (), strict=True):
            cell.cell_contents = copy.deepcopy(original.cell_contents, memo)
        return found


def _keep_closures(model: nn.Module) -> None:
    """Put a `_Closure` in place of each function with variables in the attributes of modules, their hooks too: a copy
    of it would compute with the weights of the original."""
    for module in model.modules():
        for holder in (vars(module), *(each for each in vars(module).values() if isinstance(each, dict))):
            for name, value in list(holder.items()):
                if isinstance(value, FunctionType) and value.__closure__:
                    holder[name] = _Closure(value)


def require_copies(model: nn.Module, key: str) -> None:
    """Raise SpecError for what copies lack: hooks on the gradient of a parameter, and how TorchScript trains."""
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise SpecError(
                f"{f'the module `{name}`' if name else 'the model'} is of TorchScript, and its copies do not train",
                key=key,
                hint="give what it was made of, without `torch.jit.script`",
            )
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise SpecError(
                f"the parameter `{name}` has a hook on its gradient, which its copy on a stage would lack",
                key=key,
                hint="let a submodule's `forward` hook what it gives, or an optimizer of yours change the gradient",
            )


def names_of(model: nn.Module) -> list[list[str]]:
    """The names of each parameter, several where it is tied."""
    found: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        found.setdefault(id(parameter), []).append(name)
    return list(found.values())


def _untie(model: nn.Module) -> None:
    """Give each further name of a parameter a copy of its own. A config of transformers says so from now on, or the
    class would tie them again where it loads the weights."""
    for _, *further in names_of(model):
        for name in further:
            path, _, last = name.rpartition(".")
            holder = model.get_submodule(path)
            tied = holder.get_parameter(last)
            setattr(holder, last, nn.Parameter(tied.detach().clone(), tied.requires_grad))
    config = getattr(model, "config", None)
    if getattr(config, "tie_word_embeddings", False):
        config.tie_word_embeddings = False  # type: ignore[union-attr]


def _weights_of(file: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file by name, without what `alray export` added. Nothing in it is run."""
    try:
        if file.suffix == ".safetensors":
            loaded: dict[str, torch.Tensor] = load_file(file)
            return loaded
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (SafetensorError, UnpicklingError, RuntimeError, EOFError, KeyError, ValueError) as error:
        raise SpecError(
            f"`{file}` is not a file of weights that torch or safetensors reads: {type(error).__name__}",
            key="model.weights",
            hint="write one with torch.save(model.state_dict(), ...) or safetensors' save_file",
        ) from error
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        entries = f", but {listed([str(name) for name in found], 'and')}" if isinstance(found, dict) else ""
        raise SpecError(
            f"`{file}` holds no state dict{entries}",
            key="model.weights",
            hint=f"save the one that you mean: torch.save(torch.load({file.name!r})['state_dict'], 'first.pt')",
        )
    return {name: value for name, value in found.items() if not name.startswith(ADDED)}
