"""`method: noprop`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.method import MethodSection
from alray.config.sections.section import PositiveFloat, Width


class NoProp(MethodSection):
    """NoProp: every component denoises an embedding of the label from the sample, which travels with the message.

    Nothing travels backwards, and no component needs what another one computes. The only route is the whole network.
    """

    implementation = "method:NoPropMethod"
    abbreviation = "NoProp"
    encoders_take_samples = True
    trains = "squared error of the label's embedding, of a noised one and the sample"
    every_depth = False
    source = "Li, Teh and Pascanu 2025, arXiv 2503.24322"

    kind: Literal["noprop"]
    """`noprop`."""
    eta: PositiveFloat = 0.1
    """Factor of the losses of all components."""
    hidden: Width = 256
    """Width of the layers that read an encoder's output and the noised embedding. Images are averaged to at most
    4 x 4 first."""
