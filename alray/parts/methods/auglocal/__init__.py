"""`method: auglocal`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from alray.config.sections.head import HeadOrAuto
from alray.config.sections.method import MethodSection
from alray.config.sections.section import PositiveInt


class AugLocal(MethodSection):
    """Auxiliary networks (AugLocal): after every component copies of encoders above, with a readout and cross-entropy.

    Nothing travels backwards. The only route is the whole network.
    """

    implementation = "method:AugLocalMethod"
    abbreviation = "AugLocal"
    weighs_classes = True
    trains = "cross-entropy after copies of encoders above"
    every_depth = False
    source = "Ma et al., ICLR 2024"

    kind: Literal["auglocal"]
    """`auglocal`."""
    depth: PositiveInt = 2
    """Copies of encoders in the auxiliary network of the first component, evenly chosen from those above it."""
    pyramid: Annotated[float, Field(ge=0, le=1)] = 0.5
    """How far the last auxiliary network shrinks from `depth` copies towards one. 0: all have `depth`, or as many as
    there are encoders."""
    head: HeadOrAuto = "auto"
    """The readouts. `auto`: average to at most 4 x 4, flatten, one linear layer."""
