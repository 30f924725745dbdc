"""The type of a check across keys, and questions about a spec that several checks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from alray.schedules.table import SCHEDULES
from alray.spec.models import Spec
from alray.spec.source_locations import Path

Finding = tuple[Path, str, str]
"""Key, message, hint."""
Check = Callable[[Spec], Iterator[Finding]]


def is_pipeline(spec: Spec) -> bool:
    """Whether gradients travel between stages; false where the schedule does not suit the method, which another check
    reports."""
    schedule = SCHEDULES[spec.schedule]
    return schedule.is_pipeline and schedule.local_losses == spec.method.local_losses
