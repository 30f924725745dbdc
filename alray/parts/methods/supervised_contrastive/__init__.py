"""`method: supervised_contrastive`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.head import HeadOrAuto, LabelSmoothing
from alray.config.sections.method import ComparingSection
from alray.config.sections.section import PositiveFloat, Width


class SupervisedContrastive(ComparingSection):
    """Supervised contrastive local losses (SCPL): samples of one class are drawn together, the others pushed apart.

    Nothing travels backwards. The last component is a classifier with cross-entropy.
    """

    implementation = "method:ContrastiveMethod"
    abbreviation = "SCPL"
    trains = "supervised contrastive loss of a projection; the last one cross-entropy"
    every_depth = False
    source = "Wang 2022, arXiv 2602.00062"

    kind: Literal["supervised_contrastive"]
    """`supervised_contrastive`."""
    projection_dim: Width = 128
    """Width of both layers of the projection heads, whose output the losses compare. Images are averaged to at most
    4 x 4 first."""
    temperature: PositiveFloat = 0.1
    """The divisor of the similarities, which lie in -1..1."""
    head: HeadOrAuto = "auto"
    """The layers after the last encoder. `auto`: average to at most 4 x 4, flatten, one linear layer."""
    label_smoothing: LabelSmoothing = 0.0
    """Share of the target that the last component's loss spreads evenly over all classes."""
