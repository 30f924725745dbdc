"""`method: channel_goodness`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.method import MethodSection


class ChannelGoodness(MethodSection):
    """Channel-wise competitive learning (CwComp): each class has a group of channels, whose squares compete.

    Nothing travels backwards, and every depth is a route. The channels of every component must be divisible by the
    number of classes.
    """

    implementation = "method:ChannelGoodnessMethod"
    abbreviation = "CwComp"
    weighs_classes = True
    trains = "cross-entropy over the squares of groups of channels"
    source = "Papachristodoulou et al., AAAI 2024"

    kind: Literal["channel_goodness"]
    """`channel_goodness`."""
