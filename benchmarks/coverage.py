"""How often the 90 % intervals of studies contain the truth, on made-up studies whose truth is known.

    python -m benchmarks.coverage

Seeds do something to all points alike, and so do days: that is what the intervals must not count twice, nor leave
out. The noisy quadratic is trained, with a search of its rate at each batch size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from alray.config.study.section import Study
from alray.studies.confidence import Interval
from alray.studies.doubt import of_two
from alray.studies.records import Reached, Times, TrialRecord
from alray.studies.results import Results
from alray.studies.series import BatchSizeSeries, critical_batch_size
from benchmarks.runs import write_results

STUDIES = 1_000
_RATIO = math.log(0.9)
"""The true logarithm of the figure of b, divided by that of a."""
_SIZES = (32, 64, 128, 256, 512, 1024, 2048)
_CRITICAL = 200.0
_COORDINATES, _SEEN = 400, 20
"""Of the noisy quadratic: all, and those that a step's gradient shows."""


def paired_seeds(generator: np.random.Generator, seeds: int = 3) -> tuple[Interval, float]:
    """Steps to a target of two variants. What a seed does to both is twice the rest of chance."""
    of_seeds = 0.1 * generator.standard_normal(seeds)
    records = [
        _reached(2 * seed + at, name, seed, 12.0 + at * _RATIO + of_seeds[seed] + 0.05 * generator.standard_normal())
        for seed in range(seeds)
        for at, name in enumerate("ab")
    ]
    return _interval(records, "steps_to_target", target=_TARGET, repeats=seeds), _RATIO


def days(generator: np.random.Generator, count: int = 5) -> tuple[Interval, float]:
    """Times of two variants on several days, with two seeds on each. A day does something to both, and a smaller thing
    to each of them."""
    records: list[TrialRecord] = []
    for session in range(count):
        of_both, of_each = 0.1 * generator.standard_normal(), 0.03 * generator.standard_normal(2)
        for seed in range(2):
            for at, name in enumerate("ab"):
                log_s = at * _RATIO + of_both + of_each[at] + 0.01 * generator.standard_normal()
                records.append(_timed(len(records), name, seed, session, math.exp(log_s)))
    return _interval(records, "epoch_s", sessions=count, repeats=2, measures="times"), _RATIO


def one_day(generator: np.random.Generator) -> tuple[Interval, float]:
    """The same on a single day with three seeds, as the interval within it: what it says of other days."""
    of_each = 0.03 * generator.standard_normal(2)
    records = [
        _timed(2 * seed + at, name, seed, 0, math.exp(at * _RATIO + of_each[at] + 0.01 * generator.standard_normal()))
        for seed in range(3)
        for at, name in enumerate("ab")
    ]
    return _interval(records, "epoch_s", repeats=3, measures="times"), _RATIO


def noisy_quadratic(generator: np.random.Generator, trials: int = 12, seeds: int = 3) -> tuple[Interval, float]:
    """The ratio of two critical batch sizes of gradient descent on half the square of x, with a search of the rate.

    A step's gradient shows the share p of the coordinates, chosen at random, with noise whose variance is v |x|^2 / B
    over all of them. At the best rate 1 / (1 + v / B) a step leaves 1 - p / (1 + v / B) of the loss on average. So the
    steps to a target are S_min (1 + B_c / B) with B_c = v / (1 - p / 2), up to p^2.
    """
    noises = (_CRITICAL, 3.0 * _CRITICAL)
    first, second = (BatchSizeSeries(_SIZES, _log_steps(generator, noise, trials, seeds)) for noise in noises)
    found = critical_batch_size(second, first)
    assert found is not None
    return found.interval, math.log(3.0)


def one_critical_batch_size(generator: np.random.Generator, trials: int = 12, seeds: int = 3) -> tuple[Interval, float]:
    """That of one noisy quadratic itself."""
    found = critical_batch_size(BatchSizeSeries(_SIZES, _log_steps(generator, _CRITICAL, trials, seeds)))
    assert found is not None
    return found.interval, math.log(_CRITICAL / (1.0 - 0.5 * _SEEN / _COORDINATES))


def _log_steps(generator: np.random.Generator, noise: float, trials: int, seeds: int) -> Any:
    """The logarithms of the fewest steps that any rate takes, shape [seeds, batch sizes]."""
    from scipy.stats import qmc  # imports all distributions

    columns = []
    for size in _SIZES:
        rates = 0.05 * 30.0 ** qmc.Halton(1, rng=generator).random(trials)  # 0.05 to 1.5
        steps = np.asarray([_trained(generator, rates, noise / size) for _ in range(seeds)])
        columns.append(np.log(steps.min(axis=1)))
    return np.asarray(columns).T


def _trained(generator: np.random.Generator, rates: Any, noise: float) -> Any:
    """Steps until the loss is a twentieth, for each rate: the runs of one seed see the same coordinates and noise."""
    at = np.repeat(generator.standard_normal(_COORDINATES)[None], len(rates), axis=0)
    first = float((at[0] ** 2).sum())
    steps = np.full(len(rates), np.inf)
    for step in range(1, 3_000):
        squares = (at**2).sum(axis=1, keepdims=True)
        steps[(squares[:, 0] <= first / 20.0) & np.isinf(steps)] = step
        if np.isfinite(steps).sum() >= min(3, len(rates)):  # the fewest are known
            break
        seen = generator.choice(_COORDINATES, _SEEN, replace=False)
        chance = generator.standard_normal(_SEEN) * np.sqrt(noise * squares / _COORDINATES)
        at[:, seen] -= rates * (at[:, seen] + chance)
        at[squares[:, 0] > 4.0 * first] = 2.0  # it has diverged
    return steps


KINDS: dict[str, tuple[Callable[[np.random.Generator], tuple[Interval, float]], int]] = {
    "paired_seeds": (paired_seeds, STUDIES),
    "five_paired_seeds": (lambda generator: paired_seeds(generator, 5), STUDIES),
    "days": (days, STUDIES),
    "one_day": (one_day, STUDIES),
    "noisy_quadratic": (noisy_quadratic, 60),
    "one_critical_batch_size": (one_critical_batch_size, 100),
}
"""Each kind of study, and how many are made."""


def coverage(kind: str, studies: int) -> float:
    """The share of intervals that contain the truth."""
    return float(np.mean(list(_hits(kind, studies))))


def _hits(kind: str, studies: int) -> Iterator[bool]:
    make, _ = KINDS[kind]
    generator = np.random.default_rng(7)
    for _ in range(studies):
        (low, high), truth = make(generator)
        yield low <= truth <= high


_TARGET = {"metric": "validation_error", "below": 0.1}


def _interval(records: list[TrialRecord], figure: str, **study: Any) -> Interval:
    """That of the logarithm of b's figure, divided by a's, as a report has it."""
    made = Study.model_validate(
        {"study": "made-up", "base": "x.yaml", "axes": {"variant": {"a": {}, "b": {}}}, **study}
    )
    results = Results(made, records, lambda number: Path("nowhere"))
    of = {row.point["variant"]: row for row in results.rows}
    confidence = of_two(results, figure, of["b"], of["a"], "ratio").confidence
    assert confidence is not None
    return confidence.interval


def _reached(number: int, variant: str, seed: int, log_steps: float) -> TrialRecord:
    steps = round(math.exp(log_steps))
    return _record(number, variant, seed, status="reached", reached=Reached(step=steps, samples=steps, training_s=None))


def _timed(number: int, variant: str, seed: int, session: int, epoch_s: float) -> TrialRecord:
    times = Times(training_s=None, epoch_s=epoch_s, forward_s=None, backward_s=None, update_s=None)
    began = f"2026-01-{session + 1:02}T10:00:00+00:00"
    return _record(number, variant, seed, session=session, began=began, status="finished", times=times)


def _record(number: int, variant: str, seed: int, **fields: Any) -> TrialRecord:
    whole: dict[str, Any] = {
        "number": number,
        "point": {"variant": variant},
        "index": 0,
        "values": {},
        "seed": seed,
        "overrides": [],
    }
    return TrialRecord(**whole, **fields)


def main() -> None:
    found = {}
    for kind, (_, studies) in KINDS.items():
        found[kind] = {"studies": studies, "coverage": coverage(kind, studies)}
        print(kind, found[kind], flush=True)  # noqa: T201
    write_results("coverage", found)


if __name__ == "__main__":
    main()
