"""What a check across keys is, and what several of them ask of a spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from alray.spec.micro_batches import PIPELINES
from alray.spec.models import Spec
from alray.spec.places import Path

Finding = tuple[Path, str, str]
"""Key, message, mend."""
Check = Callable[[Spec], Iterator[Finding]]


def is_pipeline(spec: Spec) -> bool:
    """Whether gradients travel between stages (what else is wrong with a schedule is told elsewhere)."""
    return not spec.method.local_losses and spec.schedule in PIPELINES
