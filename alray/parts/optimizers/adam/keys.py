"""`optimizer: adam`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.optimizer import AdamSection, FusedSection


class Adam(AdamSection, FusedSection):
    """Adam. Weight decay is added to the gradient."""

    implementation = "optimizer:chosen"

    kind: Literal["adam"] = "adam"
    """`adam`."""
