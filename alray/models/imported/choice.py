"""Where a model is cut: into parts of even work, into its natural units, or where the user says."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from itertools import pairwise

from torch import nn

from alray.models.imported.cutting import Cutter, Refused
from alray.models.imported.recording import Step
from alray.models.imported.steps import Key, name_of
from alray.planning.prediction.partition import partition_auto

_UNEVEN = 1.05
"""How much larger the largest part may be where only one activation crosses each cut."""
_NEXT_BEST = 5
"""How many other cuts are tried in place of one that is refused."""
_MAPS = 4
"""Dimensions of a batch of maps."""


class Choice:
    """The steps of a model at whose ends it may be cut, in order."""

    def __init__(self, cutter: Cutter, model: nn.Module, layers: str | None) -> None:
        """
        Args:
            layers: the path of a list of layers; then the last component ends with the last one of them.
        """
        self._cutter, self._model, self.layers = cutter, model, layers
        self.wrong: dict[Key, Refused] = {}
        self.reason = ""
        """Why the first cut that was tried is refused: a sentence without its subject; "" if none was."""

    @cached_property
    def starts(self) -> list[Step]:
        """The steps with weights in the order in which they begin, each step once."""
        return self._cutter.recordings[True].starts()

    @cached_property
    def steps(self) -> list[Step]:
        """Those before the last layer with weights after which the model may be cut."""
        last = self.starts[-1].begun if self.starts else 0
        return [step for step in self._cutter.steps if step.ended < last and self._may_end(step)]

    def _may_end(self, step: Step) -> bool:
        if step.again or step.key not in self._cutter.main:
            return False
        if step.module is not None or len(step.key) == 1:
            return True
        around, _ = step.key[-2]
        return any(True for _ in self._model.get_submodule(around).children())

    @cached_property
    def by_name(self) -> dict[str, Step]:
        """The steps by the names that a user gives them."""
        found: dict[str, Step] = {}
        for step in sorted(self.steps, key=lambda each: each.module is None):
            found.setdefault(name_of(step.key), step)
        return found

    @cached_property
    def single(self) -> list[Step]:
        """Those after which one activation is needed."""
        return [step for step in self.steps if step.alive == 1]

    def last(self, *, pooled: bool, several: bool) -> Step | None:
        """Where the last component ends: before the last layer with weights. None: the model cannot be cut there.

        Args:
            pooled: whether with the model's pooling of maps.
            several: whether several activations may be needed after it, where one is never enough, or only before
                layers of some work.
        """
        ends = self.single
        if self.layers is not None:
            ends = [step for step in ends if step.key[-1][0].startswith(f"{self.layers}.")] or ends
        end = next((step for step in reversed(ends) if self._stands(step.key)), None)
        if several and (end is None or (self.layers is None and self.left_out(end) * _UNEVEN > _UNEVEN - 1.0)):
            later = next((step for step in self.steps[: -_NEXT_BEST - 2 : -1] if self._stands(step.key)), None)
            if end is None or (later is not None and 2.0 * self.left_out(later) < self.left_out(end)):
                return later
        if end is None or pooled:
            return end
        after = self.starts[-2].ended if len(self.starts) > 1 else -1
        maps = [
            step for step in ends if after <= step.ended <= end.ended and len(self._cutter.shape(step.key)) == _MAPS
        ]
        if maps and self._elements(maps[-1]) > self._elements(end) and self._stands(maps[-1].key):
            return maps[-1]
        return end

    def _elements(self, step: Step) -> int:
        """How many numbers a step gives, for two samples."""
        return math.prod(self._cutter.shape(step.key))

    def left_out(self, end: Step) -> float:
        """The share of the work before the last layer with weights that is done after the last component."""
        before = self.steps[-1].cost
        return 1.0 - end.cost / before if before else 0.0

    def _stands(self, key: Key) -> bool:
        """Whether the model can be cut there."""
        try:
            self.require(key)
        except Refused as refused:
            self.refuse(key, refused)
            return False
        return True

    def require(self, key: Key) -> None:
        """Raise Refused if the model cannot be cut there."""
        if key in self.wrong:
            raise self.wrong[key]
        self._cutter.after(key)

    def refuse(self, key: Key, refused: Refused) -> None:
        """Cut there no more."""
        self.wrong[key] = refused
        self.reason = self.reason or f"after `{name_of(key)}`, {refused}"

    def take_readouts(self) -> None:
        """Cut only where a readout can take what is given."""
        for step in self.single:
            if not self._cutter.keeps_rows(step.key):
                self.refuse(step.key, Refused("the rows of a sample lie apart, and a readout needs them together"))

    def _gaps(self, steps: Collection[Step], starts: Sequence[Step], end: Step) -> list[Step]:
        """One step between each two with weights that follow each other before the end: the one after which least is
        needed, the last one of several."""
        found: dict[int, Step] = {}
        for one, other in pairwise(start for start in starts if start.begun <= end.ended):
            between = [step for step in steps if one.ended <= step.ended < other.begun]
            if between:
                least = min(between, key=lambda each: (each.alive, self._elements(each), -each.ended))
                found[least.ended] = least
        return [found[ended] for ended in sorted(found)]

    def natural(self, end: Step) -> list[Step]:
        """The ends of the members of the model's sequences, and of its layers with weights outside of them, where one
        activation is needed later; anywhere, if several are needed after the last component. Beside a list of layers,
        those without multiplications, as of tokens and positions, belong to the next one."""
        units = list(_units(self._model, "", in_sequence=False))
        calls = {step.key: step for step in self._cutter.steps}
        blocks: list[Step] = []
        for start in self.starts:
            unit = next((number for number, (name, _) in enumerate(start.key) if name in units), None)
            block = start if unit is None else calls[start.key[: unit + 1]]
            if block not in blocks:
                blocks.append(block)
        chosen: list[Step] = []
        steps = self.single if end.alive == 1 else self.steps
        for step in self._gaps(steps, sorted(blocks, key=lambda each: each.begun), end):
            works = self.layers is None or step.work > (chosen[-1].work if chosen else 0.0)
            if works and self._stands(step.key):
                chosen.append(step)
        return chosen

    def most(self, end: Step, *, several: bool) -> int:
        """How many components there can be."""
        return len(self._gaps(self.steps if several else self.single, self.starts, end)) + 1

    def even(self, count: int, end: Step, *, several: bool) -> list[Step] | None:
        """The ends of all components but the last, of about equal work. None: there are not so many.

        Args:
            several: whether several activations may be needed after one of them, where that is more even.
        """
        found: list[tuple[float, list[Step], list[Step]]] = []
        for steps in (self.single, self.steps) if several else (self.single,):
            gaps = [step for step in self._gaps(steps, self.starts, end) if step.key not in self.wrong]
            if len(gaps) + 1 >= count:
                works = _between(gaps, end)
                sizes = partition_auto(works, count)
                ends = [gaps[sum(sizes[: index + 1]) - 1] for index in range(count - 1)]
                found.append((max(_between(ends, end)), ends, gaps))
        if not found:
            return None
        _, ends, gaps = found[-1] if found[-1][0] * _UNEVEN < found[0][0] else found[0]
        return self._standing(ends, gaps)

    def _standing(self, ends: Sequence[Step], gaps: Sequence[Step]) -> list[Step] | None:
        """These steps; in place of one where the model cannot be cut, the nearest one where it can."""
        found: list[Step] = []
        for number, wanted in enumerate(ends):
            before = found[-1].ended if found else -1
            after = ends[number + 1].ended if number + 1 < len(ends) else gaps[-1].ended + 1
            free = [step for step in gaps if before < step.ended < after]
            nearest = sorted(free, key=lambda step: abs(step.cost - wanted.cost))[: _NEXT_BEST + 1]
            step = next((each for each in nearest if self._stands(each.key)), None)
            if step is None:
                return None
            found.append(step)
        return found


def list_of_layers(model: nn.Module) -> str | None:
    """The path of the list with the most weights among those of two or more layers that lie in no other one. None:
    there is none."""
    lists: dict[str, int] = {}
    for path, module in model.named_modules():
        children = [sum(each.numel() for each in child.parameters()) for child in module.children()]
        is_list = isinstance(module, nn.ModuleList) and len(children) > 1 and all(children)
        if is_list and not any(path.startswith(f"{other}.") for other in lists):
            lists[path] = sum(children)
    return max(lists, key=lambda each: lists[each], default=None)


def _between(ends: Sequence[Step], last: Step) -> list[float]:
    """The work up to each of these ends and the last one, from the one before."""
    costs = [0.0, *(each.cost for each in ends), last.cost]
    return [after - before for before, after in pairwise(costs)]


def _units(module: nn.Module, path: str, *, in_sequence: bool) -> Iterable[str]:
    """Paths of the units in a module: the members of sequences that have submodules, such as residual blocks."""
    chained = isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward
    is_sequence = chained or isinstance(module, nn.ModuleList)
    composed = any(any(True for _ in child.children()) for child in module.children())
    if path and in_sequence and any(True for _ in module.children()) and not (is_sequence and composed):
        yield path
        return
    for name, child in module.named_children():
        yield from _units(child, f"{path}.{name}" if path else name, in_sequence=is_sequence)
