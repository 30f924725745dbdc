"""Whether studies of times that ran again, on another day or machine, come to the same ratios.

    python -m benchmarks.again OLD NEW [NAME ...]     two folders of reports such as docs/studies; names: of the studies

Of each study that has several sessions in both, every ratio of the step times of two points is compared: how many of
the new estimates lie within the old 90 % interval, and within the old 90 % prediction interval. A report whose study
has changed since is left out: tables have the numbers of trials, which are those of other points then.

An interval is about the true ratio, and a new estimate has chance of its own. With five sessions each, and sessions
that differ as much as before, 79 % of new estimates lie within the old interval, and 90 % within the prediction
interval, which counts the chance of both. Fewer say that the days or machines differ by more than their sessions.
The ratios of a study share points, so they are not independent.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from scipy.special import stdtr, stdtrit

from alray.studies.confidence import LEVEL, Student
from alray.studies.doubt import of_two
from alray.studies.results import Results
from benchmarks.committed import report_of
from benchmarks.findings_page import KEPT, SPECS, is_of_today

FIGURE = "step_time_s"


@dataclass(frozen=True)
class Again:
    """The logarithm of the ratio of two points, as it was found twice."""

    old: Student
    new: Student

    @property
    def moved(self) -> float:
        """How far the new estimate lies from the old one, in standard errors of the old one."""
        distance = abs(self.new.mean - self.old.mean)
        return distance / self.old.error if self.old.error else math.inf if distance else 0.0

    @property
    def within_interval(self) -> bool:
        return self.moved <= self._reach

    @property
    def within_prediction(self) -> bool:
        return self.moved <= self._reach * self._both

    @property
    def expected(self) -> float:
        """The probability that a new estimate lies within the old interval, if nothing but chance differs."""
        return 1.0 - 2.0 * float(stdtr(self.old.freedom, -self._reach / self._both))

    @property
    def _reach(self) -> float:
        """Half of the interval, in standard errors."""
        return float(stdtrit(self.old.freedom, 0.5 + LEVEL / 2.0))

    @property
    def _both(self) -> float:
        """The standard error of the difference of both estimates, in those of the old one: sessions are freedom + 1."""
        return math.sqrt(1.0 + (self.old.freedom + 1.0) / (self.new.freedom + 1.0))


def ratios(old: Results, new: Results) -> list[Again]:
    """Every ratio of two points that both have."""
    again = {str(row.point): row for row in new.rows}
    pairs = [(row, again[str(row.point)]) for row in old.rows if str(row.point) in again]
    found = []
    for (one, one_again), (other, other_again) in combinations(pairs, 2):
        before = of_two(old, FIGURE, one, other, "ratio").confidence
        after = of_two(new, FIGURE, one_again, other_again, "ratio").confidence
        if isinstance(before, Student) and isinstance(after, Student):
            found.append(Again(before, after))
    return found


def line(name: str, found: Sequence[Again]) -> str:
    """What the ratios of a study show."""
    count = len(found)
    interval = sum(each.within_interval for each in found)
    prediction = sum(each.within_prediction for each in found)
    expected = sum(each.expected for each in found) / count
    return (
        f"{name}: of {count} ratios {interval / count:.0%} within the old interval ({expected:.0%} expected), "
        f"{prediction / count:.0%} within the prediction interval ({LEVEL:.0%} expected)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.again")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a study; none: all that both folders have")
    given = parser.parse_args()
    both = [file.parent.name for file in sorted(given.old.glob(f"*/{KEPT}"))]
    both = [name for name in both if (given.new / name / KEPT).is_file()]
    everything: list[Again] = []
    for name in given.names or both:
        reports = [report_of(name, SPECS, folder) for folder in (given.old, given.new)]
        if not all(is_of_today(each.loaded.study, each.kept["study"], as_often=False) for each in reports):
            print(f"{name}: left out, for its study has changed")  # noqa: T201
            continue
        old, new = (each.results for each in reports)
        if min(old.study.sessions, new.study.sessions) == 1:
            print(f"{name}: left out, for it ran once")  # noqa: T201
            continue
        found = ratios(old, new)
        if not found:
            print(f"{name}: left out, for no two points have the times of three sessions in both")  # noqa: T201
            continue
        print(line(name, found))  # noqa: T201
        everything += found
    if not everything:
        raise SystemExit("no study ran in several sessions in both folders")
    print(line("all", everything))  # noqa: T201


if __name__ == "__main__":
    main()
