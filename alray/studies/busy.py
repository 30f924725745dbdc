"""What a study says of a machine that was busy: that other programs took processors from its trials."""

from __future__ import annotations

from collections.abc import Sequence

from alray.core.counting import counted
from alray.runtime.probe.other_programs import BUSY, taken
from alray.studies.records import TrialRecord


def taken_from(record: TrialRecord, other_processors: float, at_once: int) -> float:
    """The processors that other programs took from a trial: those that they kept busy, less those that it left free.

    Args:
        at_once: the trials that ran at the same time.
    """
    summary = record.summary
    used = 1
    if summary is not None:
        used = summary.threads * (1 if summary.engine == "inline" else summary.stages * summary.replicas)
    return taken(other_processors, at_once * used)


def busy_warnings(records: Sequence[TrialRecord]) -> list[str]:
    """The warning that other programs took processors from trials; none where they did not."""
    disturbed = list(filter(is_disturbed, records))
    if not disturbed:
        return []
    numbers = [str(record.number) for record in disturbed]
    listed = ", ".join(numbers[:_MOST_LISTED])
    listed += f" and {len(numbers) - _MOST_LISTED} more" if len(numbers) > _MOST_LISTED else ""
    most = max(record.taken_processors or 0.0 for record in disturbed)
    return [
        f"{WAS_BUSY}: other programs took up to {most:.1f} processors from {len(numbers)} of "
        f"{counted(len(records), 'trial')} ({listed}), so their times cannot be compared."
    ]


def is_disturbed(record: TrialRecord) -> bool:
    """Whether other programs took enough processors from a trial to be told of."""
    return (record.taken_processors or 0.0) > BUSY


WAS_BUSY = "The machine was busy"
"""How the warning begins."""
_MOST_LISTED = 10
