"""The time of an update that takes the gradients of several mini-batches (`optimizer.accumulate`).

The probe repeats a few mini-batches, and none of them may complete an update. So each of them updates, and what all of
them do besides is measured apart.
"""

from __future__ import annotations

import sys

import torch

from alray.models.component import Component
from alray.models.optimizers import Accumulation
from alray.runtime.probe.timing import ProbedAction, Timing, time_actions


def update_each_time(component: Component) -> None:
    """Let each mini-batch of this component complete an update."""
    for optimizer in component.optimizers().values():
        optimizer.accumulation.mini_batches = 1


def time_gathering(component: Component, timing: Timing) -> float:
    """Seconds in which a mini-batch adds its gradients to those that wait for an update."""
    optimizers = component.optimizers().values()
    gathering = [
        (Accumulation(each.parameters, sys.maxsize), [(own, torch.zeros_like(own)) for own in each.parameters])
        for each in optimizers
    ]

    def gather() -> None:
        for accumulation, gradients in gathering:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            accumulation.gather()

    timed = time_actions([ProbedAction(component.index, "update_s", gather)], timing)
    return timed[component.index].seconds["update_s"]
