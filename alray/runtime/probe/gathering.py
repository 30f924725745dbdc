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

    for accumulation, gradients in gathering:  # the first one is kept as the sum itself
        for parameter, gradient in gradients:
            parameter.grad = torch.zeros_like(gradient)
        accumulation.gather()
    timed = time_actions([ProbedAction(component.index, "update_s", gather)], timing)
    return timed[component.index].seconds["update_s"]
