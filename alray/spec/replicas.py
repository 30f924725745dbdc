"""`replicas`: copies of the whole pipeline that share the data."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from alray.spec.section import PositiveInt, Section, refusal


def _one(count: int) -> int:
    if count > 1:
        raise refusal(f"{count} replicas are not part of this version of alray", "leave it at 1")
    return count


class Replicas(Section):
    """Data parallelism."""

    count: Annotated[PositiveInt, AfterValidator(_one)] = 1
    """Number of replicas. This version has one."""
