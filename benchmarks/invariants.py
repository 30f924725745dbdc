"""What no measured time can be, over all tables in docs/studies: which reports break it, and which figures of them the
clock of alray before 0.3 decided.

    python -m benchmarks.invariants     lists the reports that break it

Before 0.3 the seconds of training, of an epoch and to a target, and the bubble, were those of stage 0. Where stages
stream, it has finished its last mini-batch while later stages still train. So these figures are too small.
"""

from __future__ import annotations

from alray.studies.invariants import broken_by
from alray.studies.records import TrialRecord
from benchmarks.committed import Report, reports


def measured_by_stage_0(report: Report, record: TrialRecord) -> bool:
    """Whether the seconds of a trial were those of stage 0, while later stages still trained."""
    summary = record.summary
    if not report.is_of_earlier_clock or summary is None:
        return False
    return summary.stages > 1 and summary.schedule == "streamed"


def main() -> None:
    for report in reports():
        for sentence in broken_by(report.results):
            print(f"{report.name}: {sentence}")  # noqa: T201


if __name__ == "__main__":
    main()
