"""Components that are measured together, in the order of a stage.

A component that is repeated alone finds its weights and activations in the processor's caches. In a run, the other
components of its stage have used the caches since, but its input was written just before. So neighbours are measured
together: all of them go through F, then through L, B and U, each one reads what the one below it has just computed, and
each action is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from alray.models.component import Exercise
from alray.planning.prediction.costs import ComponentCosts, Costs
from alray.runtime.probe.timing import ProbedAction

_TOGETHER_BYTES = 64 << 20  # that neighbours work on which are measured together: a few times a processor's caches
_PASS_ON = ("forward_s", "label_s")


def divide(kinds: Sequence[str], costs: Costs) -> list[range]:
    """The components of a network, divided into neighbours that work on at most `_TOGETHER_BYTES`, or single ones.

    Neighbours that are all of earlier kinds are left out.

    Args:
        kinds: of the components, in order; those of one kind differ in their weights only.
    """
    sizes = [_bytes_of(component) for component in costs.components]
    divided, known, start = [], set[str](), 0
    while start < len(kinds):
        stop = start + 1
        while stop < len(kinds) and sum(sizes[start : stop + 1]) <= _TOGETHER_BYTES:
            stop += 1
        if not known.issuperset(kinds[start:stop]):
            divided.append(range(start, stop))
        known.update(kinds[start:stop])
        start = stop
    return divided


def _bytes_of(component: ComponentCosts) -> int:
    """Bytes that a component works on in a mini-batch."""
    return component.parameter_bytes + component.gradient_bytes + component.optimizer_bytes + component.activation_bytes


@dataclass(frozen=True)
class Neighbours:
    """Exercises of the components that are measured together, by their index, in order."""

    exercises: Mapping[int, Exercise]

    def mini_batch(self, *, local_losses: bool) -> list[ProbedAction]:
        """All actions of a mini-batch, with its evaluation, in the order of a stage."""
        backward = self.up("backward_s") if local_losses else self.down("backward_s")
        return [
            *self.up("forward_s"),
            *self.up("label_s"),
            *backward,
            *self.up("update_s"),
            *self.up("infer_s"),
            *self.down("route_s"),
        ]

    def up(self, name: str) -> list[ProbedAction]:
        """An action of all components, the first one first. After F and L the next component has what was passed on."""
        return [
            ProbedAction(index, name, self._passing_on(index, name) if name in _PASS_ON else each.parts[name])
            for index, each in self.exercises.items()
        ]

    def down(self, name: str) -> list[ProbedAction]:
        """An action of all components, the last one first."""
        return self.up(name)[::-1]

    def _passing_on(self, index: int, name: str) -> Callable[[], None]:
        each, above = self.exercises[index], self.exercises.get(index + 1)
        action = each.parts[name]
        if above is None:
            return action
        labels = {name: above.incoming[name] for name in above.incoming if name == "labels"}

        def run() -> None:
            if name == "forward_s":  # as in a stage, nothing of the last mini-batch is left
                each.passed_on = {}
                above.incoming = labels
            action()
            above.incoming = labels | each.passed_on

        return run
