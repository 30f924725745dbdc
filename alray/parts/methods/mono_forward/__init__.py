"""`method: mono_forward`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.method import MethodSection


class MonoForward(MethodSection):
    """Mono-Forward: a projection to the classes with cross-entropy after every component, and their sum predicts.

    Nothing travels backwards, and every depth is a route.
    """

    implementation = "method:MonoForwardMethod"
    abbreviation = "MF"
    weighs_classes = True
    trains = "cross-entropy of a projection to the classes"
    source = "arXiv 2501.09238 (2025)"

    kind: Literal["mono_forward"]
    """`mono_forward`."""
    prediction: Literal["sum", "last"] = "sum"
    """How a route predicts. `sum`: by the sum of the scores of all its components. `last`: by those of its last one."""
