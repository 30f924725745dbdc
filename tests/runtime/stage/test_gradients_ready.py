"""Components are told of as soon as a backward pass has come through them, in one order everywhere."""

from __future__ import annotations

import torch
from torch import nn

from alray.runtime.stage.work.backpropagation import GradientsReady


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
    """What is told: the component, and whether the first one had no gradient yet by then."""
    told: list[tuple[int, bool]] = []

    def ready(component: Part) -> None:
        assert all(each.grad is not None for each in component.parameters() if component.uses_spare)
        told.append((component.index, parts[0].linear.weight.grad is None))

    return told, GradientsReady(parts, ready)


def backward(parts: list[Part]) -> None:
    s = torch.ones(3, 2)
    for part in parts:
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
    parts[1].uses_spare = False
    told, watch = told_in(parts)
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


def test_a_pass_that_is_not_watched_is_told_of_at_its_end() -> None:
    parts = [Part(index) for index in range(2)]
    told, watch = told_in(parts)
    backward(parts)
    assert told == []
    watch.finish()
    assert [index for index, _ in told] == [1, 0]
