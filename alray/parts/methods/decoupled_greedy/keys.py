"""`method: decoupled_greedy`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.head import HeadOrAuto, LabelSmoothing
from alray.config.sections.method import MethodSection


class DecoupledGreedy(MethodSection):
    """Decoupled greedy learning (DGL): a classifier with the loss of the task after every component.

    Nothing travels backwards, and every depth is a route.
    """

    implementation = "method:GreedyMethod"
    abbreviation = "DGL"
    tasks = None
    takes_shares = True
    weighs_classes = True
    trains = "the loss of a readout"
    source = "Belilovsky, Eickenberg and Oyallon, ICML 2020"

    kind: Literal["decoupled_greedy"]
    """`decoupled_greedy`."""
    head: HeadOrAuto = "auto"
    """The classifier after every encoder. `auto`: average to at most 4 x 4, flatten, one linear layer."""
    label_smoothing: LabelSmoothing = 0.0
    """Share of the target spread evenly over all classes."""
