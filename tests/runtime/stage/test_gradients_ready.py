"""Components are told of as soon as a backward pass has come through them, in one order everywhere."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from alray.core.errors import StageError
from alray.models.component import Component
from alray.parts.schedules.dualpipe_v import ACTIONS
from alray.runtime.stage.assemble import split_by, work_of
from alray.runtime.stage.replication import Replication
from alray.runtime.stage.work.backpropagation import GradientsReady, MicroBatching
from alray.runtime.stage.work.work import MicroBatch

from ...conftest import OWN_BLOCKS


class Part(nn.Module):
    """A component of which one parameter may take no part."""

    def __init__(self, index: int, width: int = 2) -> None:
        super().__init__()
        self.index = index
        self.linear = nn.Linear(width, width) if width else None
        self.spare = nn.Parameter(torch.zeros(2)) if width else None
        self.uses_spare = True

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        if self.linear is None:
            return s * 2.0
        return self.linear(s) + (self.spare if self.uses_spare else 0.0)


def told_in(parts: list[Part]) -> tuple[list[tuple[int, bool]], GradientsReady]:
    """What is told: the component, and whether the first one had no gradient yet by then. One pass has been counted."""
    told: list[tuple[int, bool]] = []

    def ready(component: Part) -> None:
        assert all(each.grad is not None for each in component.parameters() if component.uses_spare)
        told.append((component.index, parts[0].linear.weight.grad is None))

    watch = GradientsReady(parts, ready)
    watch.begin()
    backward(parts)
    assert told == []
    watch.finish()
    told.clear()
    return told, watch


def backward(parts: list[Part], *, forget: bool = True) -> None:
    s = torch.ones(3, 2)
    for part in parts:
        if forget:
            part.zero_grad()
        s = part(s)
    s.sum().backward()


def test_the_last_one_first_while_the_pass_goes_on() -> None:
    parts = [Part(index) for index in range(3)]
    told, watch = told_in(parts)
    for _ in range(2):
        watch.begin()
        backward(parts)
        assert told == [(2, True), (1, True), (0, False)]
        watch.finish()
        assert len(told) == 3
        told.clear()


def test_a_missing_gradient_holds_up_those_below_to_the_end() -> None:
    parts = [Part(index) for index in range(3)]
    told, watch = told_in(parts)
    parts[1].uses_spare = False
    watch.begin()
    backward(parts)
    assert told == [(2, True)]
    watch.finish()
    assert [index for index, _ in told] == [2, 1, 0]


def test_a_component_without_parameters_is_told_of_with_the_one_above() -> None:
    parts = [Part(0), Part(1, width=0), Part(2), Part(3, width=0)]
    told, watch = told_in(parts)
    watch.begin()
    assert [index for index, _ in told] == [3]
    backward(parts)
    assert [index for index, _ in told] == [3, 2, 1, 0]


class Twice(Part):
    """Its gradients come in two passes within the backward pass."""

    times = 2

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        for _ in range(self.times):
            s = checkpoint(super().forward, s, use_reentrant=True)
        return s


def test_a_gradient_that_comes_several_times_is_complete_at_the_end() -> None:
    """The next pass may have more of them."""
    parts = [Part(0), Twice(1), Part(2)]
    told, watch = told_in(parts)
    for parts[1].times in (2, 3, 1):
        watch.begin()
        backward(parts)
        assert [index for index, _ in told] == [2]
        watch.finish()
        assert [index for index, _ in told] == [2, 1, 0]
        told.clear()


def test_a_gradient_that_came_once_and_now_comes_again_is_refused() -> None:
    parts = [Part(0), Part(1), Twice(2)]
    parts[2].times = 1
    _, watch = told_in(parts)
    parts[2].times = 2
    watch.begin()
    with pytest.raises(StageError, match="component 2 came more often than in the mini-batches before"):
        backward(parts)


def test_a_parameter_that_is_frozen_later_holds_up_its_component() -> None:
    parts = [Part(0), Part(1), Part(2)]
    told, watch = told_in(parts)
    parts[1].spare.requires_grad_(False)
    parts[1].uses_spare = False
    watch.begin()
    backward(parts)
    assert [index for index, _ in told] == [2]
    watch.finish()
    assert [index for index, _ in told] == [2, 1, 0]


def test_a_pass_that_is_not_watched_is_told_of_at_its_end() -> None:
    parts = [Part(index) for index in range(2)]
    told, watch = told_in(parts)
    watch.begin()
    backward(parts)
    watch.finish()
    told.clear()
    backward(parts)
    assert told == []
    watch.finish()
    assert [index for index, _ in told] == [1, 0]


def test_of_sums_a_component_with_a_new_gradient_comes_at_the_end() -> None:
    """What is told may change the gradient, and a new one may be a view of that which goes on down."""
    parts = [Part(index) for index in range(3)]
    told, watch = told_in(parts)
    parts[1].uses_spare = False
    backward(parts)
    parts[1].uses_spare = True
    watch.begin(adds=True)
    backward(parts, forget=False)
    assert [index for index, _ in told] == [2]
    watch.finish()
    assert [index for index, _ in told] == [2, 1, 0]


class Told(Replication):
    """Replicas that note, where the gradients of a component begin to be averaged, those and the ones of the lowest."""

    averages_gradients = True

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[int, list[torch.Tensor | None], list[torch.Tensor | None]]] = []
        self.lowest: nn.Module

    def start(self, component: Component, samples: int) -> None:
        self.noted.append((component.index, gradients(component), gradients(self.lowest)))


def gradients(module: nn.Module) -> list[torch.Tensor | None]:
    return [None if each.grad is None else each.grad.clone() for each in module.parameters()]


@pytest.mark.parametrize("whole", ["", "0", "1"])
def test_in_lists_that_split_a_component_is_told_of_after_its_layers(make_network, whole: str) -> None:
    """Two micro-batches, of which one or none has a whole backward."""
    network = make_network("method=backpropagation", "model.components=[{block: linear, width: 5, repeat: 4}]")
    replication = Told()
    cut = MicroBatching(count=2, split=[(0, number) for number in range(2) if str(number) not in whole])
    work = work_of([network.component(index, "cpu") for index in (1, 2, 3)], replication, cut=cut)
    replication.lowest = work.components[0]
    batches = [
        MicroBatch(1, {"s": torch.randn(4, 5), "labels": torch.arange(4)}, samples=8, number=number)
        for number in range(2)
    ]
    for batch in batches:
        work.forward(batch)
    for batch in batches:
        if str(batch.number) in whole:
            work.backward(batch)
        else:
            work.input_gradient(batch)
    for batch in batches:
        if str(batch.number) not in whole:
            work.weight_gradients(batch)
    assert [index for index, _, _ in replication.noted] == [3, 2, 1]
    complete = gradients(replication.lowest)
    for component, (_, own, lowest) in zip(reversed(work.components), replication.noted, strict=True):
        assert all(torch.equal(*each) for each in zip(own, gradients(component), strict=True))
        if component is not replication.lowest:
            assert not any(
                each is not None and torch.equal(each, last) for each, last in zip(lowest, complete, strict=True)
            )


def test_layers_leave_weights_for_later_only_where_the_list_splits(make_network) -> None:
    """Four micro-batches of `dualpipe_v` on two stages: three backwards of eight are split, and two of eight."""
    assert split_by(ACTIONS(0, 2, 0, 4, 2)) == {(1, 0), (0, 2), (0, 3)}
    assert split_by(ACTIONS(1, 2, 0, 4, 2)) == {(0, 3), (1, 3)}
    network = make_network("method=backpropagation", "model.components=[{block: linear, width: 5, repeat: 2}]")
    work = work_of([network.component(1, "cpu")], cut=MicroBatching(count=2, split=[(0, 1)]))
    kinds = []
    for number in range(2):
        batch = MicroBatch(1, {"s": torch.randn(4, 5), "labels": torch.arange(4)}, samples=8, number=number)
        work.forward(batch)
        kinds.append(work._graphs[0, number].later is not None)
    assert kinds == [False, True]


BOTH = ((0, 0), (0, 1))
"""Two micro-batches, whose backward has two parts."""

SHIFTED = """
import torch


class Shifted(torch.nn.Module):
    def __init__(self, input, layer=False):
        super().__init__()
        self.layer = torch.nn.Linear(input.elements, input.elements) if layer else torch.nn.Identity()
        self.shift = torch.nn.Parameter(torch.ones(input.elements))

    def forward(self, s, mask=None):
        return self.layer(s) + self.shift.unsqueeze(0)
"""


def test_what_waits_for_the_second_part_stays_as_it_is(make_network) -> None:
    """The shift's gradient is a view of that of the layer below, of which the second part computes."""
    network = make_network(
        "method=backpropagation",
        f"model.components=[{{block: linear, width: 5}}, {{block: 'python:{OWN_BLOCKS[:-3]}.Shifted', layer: true}}]",
        code=SHIFTED,
    )
    batches = [
        MicroBatch(1, {"s": torch.randn(1, 5), "labels": torch.tensor([1])}, samples=2, number=number)
        for number in range(2)
    ]
    found = []
    for splits in (False, True):
        work = work_of([network.component(1, "cpu")], cut=MicroBatching(count=2, split=BOTH if splits else ()))
        for batch in batches:
            work.forward(MicroBatch(1, dict(batch.incoming), samples=2, number=batch.number))
        parts = (work.input_gradient, work.weight_gradients) if splits else (work.backward,)
        for part in parts:
            for batch in batches:
                part(MicroBatch(1, {}, samples=2, number=batch.number))
        found.append([gradients(component) for component in work.components])
    for whole, split in zip(*found, strict=True):
        assert all(torch.equal(*each) for each in zip(whole, split, strict=True))


@pytest.mark.parametrize("splits", [False, True])
def test_a_message_down_stays_as_it_is_while_later_gradients_are_added(make_network, splits: bool) -> None:
    """Of one sample, the gradient of the shift is a view of that of the input, which may not have left yet."""
    network = make_network(
        "method=backpropagation",
        f"model.components=[{{block: linear, width: 5}}, {{block: 'python:{OWN_BLOCKS[:-3]}.Shifted'}}]",
        code=SHIFTED,
    )
    work = work_of([network.component(1, "cpu")], cut=MicroBatching(count=2, split=BOTH if splits else ()))
    sent = []
    for number in range(2):
        batch = MicroBatch(1, {"s": torch.randn(1, 5), "labels": torch.tensor([1])}, samples=2, number=number)
        work.forward(batch)
        (work.input_gradient if splits else work.backward)(batch)
        sent.append((batch.to_below["s"], batch.to_below["s"].clone()))
        if splits:
            work.weight_gradients(batch)
    assert all(torch.equal(message, as_it_was) for message, as_it_was in sent)
