"""A whole imported model: made, traced, cut into parts, and given its first weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import torch
from torch import fx, nn

from alray.config.user_code import own_problem
from alray.core.compat import BatchNorm
from alray.core.counting import counted
from alray.core.errors import FAULTS_OF_USER_CODE, Problem, SpecError
from alray.models.imported.cut_points import (
    SAMPLES,
    alive_behind,
    costs,
    cut_point_of,
    even,
    natural,
    state_of,
    tied_layers,
    tied_parameters,
    uses_again,
    weighted,
)
from alray.models.imported.ends import PartEnds
from alray.models.imported.given import GivenModel
from alray.models.imported.layout import channels_last
from alray.models.imported.part import Part, TracedPart, between, plain_tensors, without_values
from alray.models.imported.proof import prove
from alray.models.imported.sources import made
from alray.models.imported.trace import Trace, copy_of, first_line, trace
from alray.models.readout import Pooling
from alray.models.shape import Shape

Shapes = tuple[tuple[int, ...], ...]
"""Of one sample of several tensors."""
_MAPS = 4
"""Dimensions of a batch of maps."""


class ImportedModel(GivenModel):
    """A model that is traced, and cut where one tensor is needed later, or several."""

    def __init__(
        self,
        source: str,
        arguments: dict[str, Any],
        load: Callable[[str], Any],
        *,
        freeze: Sequence[str] = (),
        untie: bool = False,
        allow_files: bool = False,
        lowered: bool = False,
    ) -> None:
        """Raises SpecError.

        Args:
            source: `torchvision:NAME`, `timm:NAME` or `python:package.module.Class`.
            load: takes the last of them to the object that it names.
            freeze: names of modules and parameters that no method trains.
            untie: as for `GivenModel`.
            allow_files: as for `made`.
            lowered: whether its parts compute in mixed precision.
        """
        self._lowered = lowered
        whole = made(source, arguments, load, allow_files=allow_files)
        super().__init__(whole, source, arguments, freeze=freeze, untie=untie)

    @property
    def last_layer(self) -> str:
        return list(self._with_weights)[-1]

    @cached_property
    def _traces(self) -> dict[bool, Trace]:
        """By whether the model trains."""
        both = partial(trace, self.whole, self.title, lowered=self._lowered)
        training = both(training=True, frozen=self.frozen)
        evaluation = both(training=False, opaque=training.opaque)
        if evaluation.opaque != training.opaque:
            training = both(training=True, opaque=evaluation.opaque, frozen=self.frozen)
        for name, value in (training.constants | evaluation.constants).items():
            self.whole.register_buffer(name, value, persistent=False)
        return {True: training, False: evaluation}

    @cached_property
    def _alive(self) -> dict[bool, dict[str, tuple[fx.Node, ...]]]:
        return {mode: alive_behind(traced) for mode, traced in self._traces.items()}

    @cached_property
    def _with_weights(self) -> Mapping[str, None]:
        """Names of the layers with weights, in order."""
        traced = self._traces[True]
        found = {traced.names[node]: None for node in weighted(traced, self.whole)}
        if not found:
            raise SpecError(f"{self.title} has no layer with weights", key="model.from", hint="give another model")
        return found

    @cached_property
    def _channels_last(self) -> frozenset[str]:
        return channels_last(self._traces[True], self.whole)

    @property
    def opaque(self) -> frozenset[str]:
        """Paths of submodules that could not be traced, and stay in one piece."""
        return self._traces[True].opaque

    @cached_property
    def cut_points(self) -> list[str]:
        """Names of the nodes after which the model can be cut, in order; the last one is before the classifier.

        Raises SpecError.
        """
        order = {name: number for number, name in enumerate(self._traces[True].names.values())}
        found = [
            name for name, alive in self._in_both.items() if len(alive) == 1 and order[name] < order[self.last_layer]
        ]
        if not found:
            tied = tied_layers(self._traces[True], self.whole)
            if tied is not None:
                why = tied_parameters(self.whole) or (
                    f"`{tied[1]}` uses the weights of `{tied[0]}`, which are in another part wherever it is cut"
                )
                raise SpecError(
                    f"{self.title} cannot be cut: {why}",
                    key="model.from",
                    hint="give each layer its own weights, such as by a constructor argument in model.with",
                )
            opaque = sorted(self._traces[True].opaque)
            why = f"; `{opaque[0]}` cannot be traced and stays in one piece" if opaque else ""
            raise SpecError(
                f"{self.title} cannot be cut: nowhere before its last layer one tensor alone is needed later{why}",
                key="model.from",
                hint="write it as a chain of submodules, each with one input and one output",
            )
        return found

    @cached_property
    def _in_both(self) -> dict[str, tuple[str, ...]]:
        """The nodes after which the same values are needed later in training and in evaluation, and no weights that
        were used before: with the names of all those values, in order."""
        again = uses_again(self._traces[True], self.whole)
        named = {
            mode: {
                name: tuple(traced.names.get(node, "") for node in self._alive[mode][name])
                for name in self._alive[mode]
            }
            for mode, traced in self._traces.items()
        }
        return {
            name: alive for name, alive in named[True].items() if name not in again and named[False].get(name) == alive
        }

    def parts(
        self, cut: Sequence[str], shapes: Mapping[str, Shapes] = MappingProxyType({}), end: str | None = None
    ) -> list[PartEnds]:
        """The ends of the components that a cut makes.

        Args:
            shapes: of one sample of the tensors that are needed after a cut point, where they are several.
            end: of the last component; None: the last cut point of all.
        """
        ends = [*cut, end or self.cut_points[-1]]
        return [
            PartEnds(after, until, shapes.get(after or "", ())) for after, until in zip([None, *cut], ends, strict=True)
        ]

    def _packed(self, values: Mapping[fx.Node, torch.Tensor], sample: Shape) -> dict[str, Shapes]:
        """The cut points after which several tensors are needed that can travel as one, with the shapes of one sample.

        They have the rows of the batch and one type, and none shares its memory with another: the model could write
        into both at once.
        """
        traced = self._traces[True]
        input = torch.zeros((SAMPLES, *sample), dtype=sample.dtype, device="meta")
        order = list(traced.names.values())
        last = order.index(self.cut_points[-1])
        found = {}
        for name in self._in_both:
            nodes = self._alive[True][name]
            if len(nodes) == 1 or order.index(name) > last:
                continue
            tensors = [input if node is traced.input else values.get(node) for node in nodes]
            given = [each for each in tensors if each is not None and _of_batch(each)]
            memory = {each.untyped_storage()._cdata for each in given}
            if len(memory) == len(tensors) and len({each.dtype for each in given}) == 1:
                found[name] = tuple(tuple(each.shape[1:]) for each in given)
        return found

    def cut(
        self,
        components: int | str,
        given: Sequence[str] | None,
        sample: Shape,
        *,
        several: bool = False,
        pooled: bool = True,
    ) -> list[PartEnds]:
        if given is not None:
            values = self._measured(sample)[1]
            packed = self._packed(values, sample) if several else {}
            cut_points = [name for name in self._in_both if name in packed or name in self.cut_points]
            chosen = [cut_point_of(name, self._traces[True], cut_points) for name in given]
            order = [cut_points.index(name) for name in chosen]
            if order != sorted(set(order)) or self.cut_points[-1] in chosen:
                raise SpecError(
                    "the cut points must follow each other, before the classifier",
                    key="model.cut",
                    hint=f"the last layers before the classifier end at `{self.cut_points[-1]}`, always a cut point",
                )
            return self.parts(chosen, packed)
        work, values = self._measured(sample)
        groups = self._groups(dict.fromkeys(self._of_batch(values), 0))
        if components == "auto":
            of_batch, with_weights = self._of_batch(values).keys(), self._with_weights.keys()
            chosen = natural(groups, self._traces[True], of_batch, with_weights, self.whole)
            return self.parts(chosen, end=None if pooled else self._before_pooling(values))
        assert isinstance(components, int)
        packed = self._packed(values, sample) if several and components > len(groups) else {}
        if packed:
            sizes = {name: sum(math.prod(shape) for shape in shapes) for name, shapes in packed.items()}
            single = {name: self._alive[True][name][0] for name in self._of_batch(values)}
            sizes |= {name: values[node].numel() // SAMPLES if node in values else 0 for name, node in single.items()}
            groups = self._groups(sizes, packed)
        if components > len(groups):
            tied = tied_parameters(self.whole)
            raise SpecError(
                f"{self.title} can be cut into at most {counted(len(groups), 'component')} with weights"
                + (f": {tied}" if tied else ""),
                key="model.components",
                hint=f"ask for {len(groups)} or fewer"
                + ("; backpropagation has more cut points" if not several and self._packed(values, sample) else ""),
            )
        of_group = dict(zip(groups, self._work_of(groups, work), strict=True))
        return self.parts(even(groups, of_group, components), packed)

    def _measured(self, sample: Shape) -> tuple[dict[fx.Node, float], dict[fx.Node, torch.Tensor]]:
        traced, cut_points, model = self._traces[True], self.cut_points, on_meta(self.whole).train()
        assert cut_points, "a model that cannot be cut has been refused"
        try:
            return costs(traced, model, sample)
        except FAULTS_OF_USER_CODE as error:
            message = f"{self.title} does not take samples of {tuple(sample)}: {first_line(error)}"
            hint = sample.hint_of_numbers or (
                "set data.image_size, or give constructor arguments by `with`, if it wants other samples"
            )
            if "meta" in str(error):
                message = f"`forward` of {self.title} reads the values of tensors: {first_line(error)}"
                hint = (
                    "write a choice by the values of tensors with torch.where: shapes are found without values, on "
                    "torch's meta device; give a tensor of a list to register_buffer, one with gradient to nn.Parameter"
                )
            problem = own_problem(error, message, key="model.from", hint=hint) or Problem(
                message, hint, key="model.from"
            )
            raise SpecError.of((replace(problem, traceback=None),)) from error

    def _groups(
        self, cut_points: Mapping[str, int], shapes: Mapping[str, Shapes] = MappingProxyType({})
    ) -> list[PartEnds]:
        """The shortest runs that have weights: each begins with a layer with weights, the first one with the input.

        Args:
            cut_points: that may be used, with the size of what travels there. Of those between two layers with weights
                the smallest counts, the last one of several.
            shapes: as in `parts`.
        """
        ends: list[str] = []
        current: str | None = None
        has_weights = False
        for name in self._traces[True].names.values():
            if name in self._with_weights:
                if current is not None and has_weights:
                    ends.append(current)
                current, has_weights = None, True
            if name in cut_points and (current is None or cut_points[name] <= cut_points[current]):
                current = name
            if name == self.cut_points[-1]:
                break
        return self.parts(ends, shapes)

    def _of_batch(self, values: dict[fx.Node, torch.Tensor]) -> dict[str, None]:
        """The cut points whose values have the rows of the batch, in order, and the last one in any case."""
        names = self._traces[True].names
        batch = {names[node] for node, value in values.items() if _of_batch(value)}
        return dict.fromkeys(name for name in self.cut_points if name in batch or name == self.cut_points[-1])

    def _before_pooling(self, values: Mapping[fx.Node, torch.Tensor]) -> str:
        """The last cut point whose value is a map, if only pooling without weights comes between it and the last cut
        point of all; else that one."""
        traced, last = self._traces[True], self.cut_points[-1]
        nodes = {name: node for node, name in traced.names.items()}
        end = values[nodes[last]]
        for name in reversed(list(nodes)[: list(nodes).index(last) + 1]):
            value = values.get(nodes[name])
            if name in self.cut_points and value is not None and _of_batch(value) and value.ndim == _MAPS:
                return name if value.numel() > end.numel() else last
            if state_of(nodes[name], traced, self.whole):
                break
        return last

    def _work_of(self, groups: Sequence[PartEnds], work: dict[fx.Node, float]) -> list[float]:
        totals = [0.0]
        remaining = [group.until for group in groups]
        for node, name in self._traces[True].names.items():
            totals[-1] += work.get(node, 0.0)
            if remaining and name == remaining[0]:
                remaining.pop(0)
                if not remaining:
                    break
                totals.append(0.0)
        return totals

    def shape_after(self, part: Part, input: Shape) -> tuple[int, ...]:
        samples = torch.zeros((SAMPLES, *input), dtype=input.dtype, device="meta")
        return tuple(on_meta(part)(samples).shape[1:])

    def prove(self, parts: Sequence[PartEnds], sample: Shape) -> None:
        whole = copy_of(self.whole, self.title, own=False)
        names = dict(whole.named_parameters())
        shared = {id(each): names[name] for name, each in self.whole.named_parameters()}
        ends = [*parts, PartEnds(parts[-1].until, None)]
        chain = [self.part(*part, shared=dict(shared)) for part in ends]
        packed = any(part.takes for part in parts)
        prove(whole, chain, sample, self.title, frozen=self.frozen, packed=packed)

    def part(
        self, after: str | None, until: str | None, takes: Shapes = (), shared: dict[int, Any] | None = None
    ) -> TracedPart:
        """The module of what lies between two cut points, with copies of the model's weights.

        Args:
            after: None for the input, and `until`: None for the result.
            takes: shapes of the tensors that its input packs, as in `PartEnds`.
            shared: as for `Part`.
        """
        graphs = {}
        for mode, traced in self._traces.items():
            alive = self._alive[mode]
            begin = (traced.input,) if after is None else alive[after]
            end = (traced.output,) if until is None else alive[until]
            graphs[mode] = between(traced, begin, end, takes)
        pooling: Pooling = "channels_last" if until in self._channels_last else "mean"
        return TracedPart(self.whole, graphs[True], graphs[False], frozen=self.frozen, pooling=pooling, shared=shared)


def _of_batch(value: torch.Tensor) -> bool:
    """Whether a value of the count has the rows of the batch, and can have a gradient."""
    return value.ndim > 1 and value.shape[0] == SAMPLES and value.is_floating_point()


def on_meta(model: nn.Module) -> nn.Module:
    """A copy of a model without values. Its forward finds shapes."""
    plain = [value for _, _, value in plain_tensors(model)]
    memo: dict[int, Any] = {id(each): without_values(each) for each in (*model.parameters(), *model.buffers(), *plain)}
    copied = copy.deepcopy(model, memo)
    for module in copied.modules():
        if isinstance(module, BatchNorm) and module.momentum is None:
            module.momentum = 0.0  # it would read the value of its counter; no shape depends on it
    return copied
