"""The findings of a study of batch sizes: three regimes of steps to the target, and settings that are not bracketed.

The regimes are those of Shallue et al. 2018 (JMLR 20(112), section 4.1), who tell them apart by eye. Here they are
computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from alray.config.study.points import label_of
from alray.config.study.space import Distribution
from alray.core.counting import setting_text
from alray.studies.results import Results
from alray.studies.table import PointRow

PERFECT = 1.25
"""Scaling is perfect up to the largest batch size that takes at most this many times the steps of the line of perfect
scaling."""
PLATEAU = 1.1
"""Maximal data parallelism begins at the smallest batch size that takes at most this many times the fewest steps of
any, if a larger one was tried."""
EDGE = 0.05
"""A value within this share of its range from an end lies on the edge, on the scale of its distribution."""


@dataclass(frozen=True)
class Regimes:
    """Batch sizes at which the regimes part.

    Attributes:
        plateau: None if no batch size is known to take as many steps as a smaller one.
        perfect_at_least: whether batch sizes larger than all that reached the target may count, too.
    """

    smallest: int
    largest: int  # that reached the target
    perfect: int
    plateau: int | None
    perfect_at_least: bool

    def of(self, batch_size: int) -> str:
        """The regime that a batch size is in."""
        if batch_size <= self.perfect:
            return "perfect scaling"
        if self.plateau is not None and batch_size >= self.plateau:
            return "maximal data parallelism"
        return "diminishing returns"


def regimes(steps: Mapping[int, float], missed: Mapping[int, int] | None = None) -> Regimes | None:
    """The regimes of steps to the target by batch size; None if fewer than two batch sizes reached it.

    Args:
        steps: batch size -> mini-batches to the target, of the batch sizes that reached it.
        missed: of the others, the mini-batches that they ran: they need more. So a larger batch size that never reached
            the target shows that a plateau has started, if it ran at least as many mini-batches as the best one needs.
    """
    sizes, missed = sorted(steps), dict(missed or {})
    if len(sizes) < 2:
        return None
    smallest, largest, fewest = sizes[0], sizes[-1], min(steps.values())
    perfect = max(size for size in sizes if steps[size] <= PERFECT * perfect_steps(steps, size))
    plateau = next(size for size in sizes if steps[size] <= PLATEAU * fewest)
    larger = plateau < largest or any(size > plateau and ran >= fewest for size, ran in missed.items())
    beyond = {size: ran for size, ran in missed.items() if size > largest}
    return Regimes(
        smallest,
        largest,
        perfect,
        plateau if larger else None,
        perfect_at_least=perfect == largest
        and not any(ran >= PERFECT * perfect_steps(steps, size) for size, ran in beyond.items()),
    )


def perfect_steps(steps: Mapping[int, float], batch_size: int) -> float:
    """Steps on the line of perfect scaling, which begins at the smallest batch size: steps0 * batch0 / batch."""
    smallest = min(steps)
    return steps[smallest] * smallest / batch_size


def not_bracketed(results: Results, rows: Sequence[PointRow]) -> Iterator[tuple[PointRow, str, str]]:
    """The points whose best settings no search has bracketed, with the key and a sentence about it: the value lies on
    the edge of its range, or it is the smallest or the largest that was tried, also of a choice of numbers. Trials that
    failed tried nothing."""
    search = results.study.search
    if search is None:
        return
    for row in rows:
        where = f"{label_of(row.point)}: " if row.point else ""
        ran = [each for settings in results.settings_of(row) for each in settings if each.status != "failed"]
        for key, distribution in search.space_at(row.point).items():
            if key not in row.settings or not _has_an_order(distribution):
                continue
            value, tried = row.settings[key], {record.values[key] for record in ran}
            if why := _edge(distribution, value) or _outermost(tried, value):
                yield row, key, f"{where}the best {key}, {setting_text(value)}, is not bracketed: {why}"


def _has_an_order(distribution: Distribution) -> bool:
    """Whether one value can be larger than another one: not those of a choice of names, nor a single one."""
    choice = distribution.choice
    numbers = [isinstance(each, int | float) and not isinstance(each, bool) for each in choice or ()]
    return choice is None or (len(choice) > 1 and all(numbers))


def _edge(distribution: Distribution, value: float) -> str:
    share = distribution.share(value)
    if share is None or EDGE < share < 1.0 - EDGE:  # a choice has no edge
        return ""
    low, high = distribution.ends
    end = "lower" if share <= EDGE else "upper"
    return f"it lies at the {end} end of its range [{low:g}, {high:g}]; widen the range"


def _outermost(tried: set[float], value: float) -> str:
    if min(tried) < value < max(tried):
        return ""
    if len(tried) == 1:
        return "no other was tried; try more"
    end = "smallest" if value == min(tried) else "largest"
    return f"it is the {end} of {len(tried)} that were tried; try more"
