"""A whole model that a spec names, with its first weights; how it is cut into parts is up to a subclass."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from alray.config.sections.own_code import OBJECT
from alray.config.sections.section import listed, nearest
from alray.core.counting import counted
from alray.core.errors import SpecError
from alray.models.imported.ends import PartEnds
from alray.models.imported.identity import module_sha256
from alray.models.imported.part import Part
from alray.models.imported.sources import named_weights
from alray.models.imported.trace import first_line
from alray.models.shape import Shape

ADDED = "alray."
"""How the names begin of what an export adds to the weights of a model."""


class GivenModel(ABC):
    """A model that `model.from` names, on the CPU, with the weights that its constructor draws or its folder has.

    Its classifier is all from its last layer with weights on. The components are what comes before.
    """

    def __init__(
        self,
        whole: nn.Module,
        source: str,
        arguments: dict[str, Any],
        *,
        freeze: Sequence[str] = (),
        untie: bool = False,
    ) -> None:
        """Raises SpecError, also if `forward` takes several tensors.

        Args:
            source: `torchvision:NAME`, `timm:NAME`, `transformers:NAME` or `python:package.module.Class`.
            arguments: those with which `whole` was made.
            freeze: names of modules and parameters that no method trains.
            untie: whether each of several names of one parameter gets a copy of its own.
        """
        self.title = f"`{source}`"
        _require_one_input(whole, self.title)
        self._source = source
        self._arguments = arguments
        self.whole = whole
        require_no_hooks(whole, "model.from")
        if untie:
            _untie(whole)
        self.frozen = self._freeze(freeze)
        self.sha256 = module_sha256(whole) if source.startswith(OBJECT) else None
        """See `Network.model_sha256`."""
        self.architecture_sha256 = module_sha256(whole, values=False) if source.startswith(OBJECT) else None
        """See `Network.architecture_sha256`."""
        self.notes: list[str] = []
        """Sentences on what was not taken of the initial weights that were given."""

    @property
    @abstractmethod
    def cut_points(self) -> list[str]:
        """Where the model can be cut, in order; the last one is before the classifier. Raises SpecError if there is
        none before the classifier."""

    @property
    @abstractmethod
    def last_layer(self) -> str:
        """The path of the last layer with weights."""

    @abstractmethod
    def cut(
        self,
        components: int | str,
        given: Sequence[str] | None,
        sample: Shape,
        *,
        several: bool = False,
        pooled: bool = True,
    ) -> list[PartEnds]:
        """The components that a spec asks for.

        Raises SpecError.

        Args:
            components: their number, or `auto`: one for each natural unit.
            given: the names after which to cut instead.
            sample: the shape of one sample.
            several: whether it may be cut where several tensors are needed later, as long as there are no other cut
                points: in a cut that is given, and for more components than there would be otherwise.
            pooled: whether natural units end with the model's pooling of maps, as its classifier wants it. A
                readout pools by itself, less, and sees more.
        """

    @abstractmethod
    def part(self, after: str | None, until: str | None, takes: tuple[tuple[int, ...], ...] = ()) -> Part:
        """The module of what lies between two cut points, with copies of the model's weights.

        Args:
            after: None for the input, and `until`: None for the result.
            takes: shapes of the tensors that its input packs, as in `PartEnds`.
        """

    @abstractmethod
    def shape_after(self, part: Part, input: Shape) -> tuple[int, ...]:
        """The shape of one sample after a part."""

    def up_to(self, until: str) -> nn.Module | None:
        """The model without the layers after this cut point and with all that comes after them, so that its class
        computes a shallower network. None where its class has no such form."""
        return None

    @abstractmethod
    def prove(self, parts: Sequence[PartEnds], sample: Shape) -> None:
        """Raise SpecError if the chain of these parts and the classifier computes otherwise than the whole model."""

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
                    hint=f"did you mean `{meant}`?" if meant else f"its largest modules are {tops}",
                )
        return frozenset(name for name in names if name in modules)

    def start_from(self, weights: Path | str) -> None:
        """Take initial weights: from a file with the names of the model, or those that torchvision or timm have under a
        name. The last layer keeps those that were drawn if the given ones have other shapes, as of another number of
        classes. Raises SpecError."""
        if isinstance(weights, Path):
            given, entry = _weights_of(weights)
            self._take(given, f"`{weights}`" if entry is None else f"`{entry}` in `{weights}`")
        else:
            self._take(named_weights(self._source, self._arguments, weights), f"`{weights}` of {self.title}")

    def _take(self, given: dict[str, torch.Tensor], title: str) -> None:
        own = self.whole.state_dict()
        given, prefix = _without_prefix(given, own)
        if prefix:
            self.notes.append(f"the weights of {title} are taken without the `{prefix}` before each of their names")
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
        missing = [name for name in own if name not in given and name not in left]
        unknown = [name for name in given if name not in own]
        other = [name for name in given if name in own and own[name].shape != given[name].shape]
        for names, what in (
            (missing, "has no weights"),
            (unknown, "has weights"),
            (other, "has weights of another shape"),
        ):
            if names:
                has = f"; its names are such as `{unknown[0]}`" if names is missing and unknown else ""
                raise SpecError(
                    f"{title} {what} for `{names[0]}`, one of {counted(len(names), 'such name')}, unlike {self.title}",
                    key="model.weights",
                    hint=f"give a state dict of the same model, made with the arguments in `with`{has}",
                )
        self.whole.load_state_dict(given, strict=False)


def _require_one_input(model: nn.Module, title: str) -> None:
    needed = [
        each.name
        for each in inspect.signature(model.forward).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if len(needed) > 1 and needed[1] not in ("mask", "attention_mask"):
        raise SpecError(
            f"`forward` of {title} takes {listed(needed, 'and')}, and a network gets one tensor",
            key="model.from",
            hint="let the data put them into one, as by torch.cat, and write a class around it whose `forward(x)` "
            "takes that apart",
        )


def require_no_hooks(model: nn.Module, key: str) -> None:
    """Raise SpecError for hooks on the gradient of a parameter: neither a copy nor a pickle of it has them."""
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


def _without_prefix(given: dict[str, torch.Tensor], own: Collection[str]) -> tuple[dict[str, torch.Tensor], str]:
    """The weights without what a module around the model put before each of their names, such as `module.` or `model.`,
    and that; as they are where one of the names is the model's own.

    Args:
        own: the names of the model.
    """
    prefix = ""
    while given and given.keys().isdisjoint(own):
        first, dot, _ = next(iter(given)).partition(".")
        if not dot or not all(name.startswith(f"{first}.") for name in given):
            break
        prefix += f"{first}."
        given = {name.removeprefix(f"{first}."): value for name, value in given.items()}
    return given, prefix


def _is_state_dict(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(each, torch.Tensor) for each in value.values())


def _weights_of(file: Path) -> tuple[dict[str, torch.Tensor], str | None]:
    """The tensors of a file by name, without what `alray export` added. Nothing in it is run. Of a file of a training,
    which holds more, those of its one entry that is a state dict, and the name of that entry."""
    try:
        if file.suffix == ".safetensors":
            loaded: dict[str, torch.Tensor] = load_file(file)
            return loaded, None
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (SafetensorError, UnpicklingError, RuntimeError, EOFError, KeyError, ValueError) as error:
        raise SpecError(
            f"`{file}` is not a file of weights: {first_line(error)}",
            key="model.weights",
            hint="write one with torch.save(model.state_dict(), ...) or safetensors' save_file",
        ) from error
    entry = None
    if isinstance(found, dict) and not _is_state_dict(found):
        entries = [name for name, value in found.items() if _is_state_dict(value)]
        if len(entries) > 1:
            raise SpecError(
                f"`{file}` holds several state dicts: {listed(entries, 'and')}",
                key="model.weights",
                hint=f"save the one that you mean: torch.save(torch.load({file.name!r})[{entries[0]!r}], 'first.pt')",
            )
        entry = entries[0] if entries else None
        found = found.get(entry)
    if not _is_state_dict(found):
        raise SpecError(
            f"`{file}` holds no state dict", key="model.weights", hint="save model.state_dict(), not the model itself"
        )
    return {name: value for name, value in found.items() if not name.startswith(ADDED)}, entry
