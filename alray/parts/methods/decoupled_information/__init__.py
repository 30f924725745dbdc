"""`method: decoupled_information`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.method import ComparingSection
from alray.config.sections.section import Width


class DecoupledInformation(ComparingSection):
    """Decoupled learning with information regularisation (DeInfoReg): variance, similarity and covariance of codes.

    Nothing travels backwards, and every depth is a route, by a classifier of the codes.
    """

    implementation = "method:InformationMethod"
    abbreviation = "DeInfoReg"
    trains = "variance, similarity and covariance of codes, cross-entropy of a classifier of them"
    source = "arXiv 2506.18193 (2025)"

    kind: Literal["decoupled_information"]
    """`decoupled_information`."""
    projection_dim: Width | None = 2048
    """Width of the three layers of the projectors, whose output the loss compares. Images are averaged to at most 4 x 4
    first. null: no projector."""
