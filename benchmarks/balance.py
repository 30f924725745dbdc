"""Dynamic batch size beside fixed shares, one of two replicas slowed 3 to 1 for some epochs.

    python -m benchmarks.balance

Each repeat runs all of them one after another: slowed and not, with both ways of sharing; and slowed with blocks that
sleep in proportion to their rows, in which nothing but the shares tells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from pathlib import Path
from statistics import median
from typing import Any

from alray.core.run_folder.records import StepRecord
from benchmarks.runs import Recorded, recorded, settings, write_results

SPEC = Path(__file__).with_name("balance.yaml")
FACTOR, FIRST, LAST = 3, 2, 7
"""How much slower replica 1 is, and from which epoch to which, counted from 1."""
ADAPTED = FIRST + 2
"""The third epoch of the disturbance: shares have followed twice."""
SETTLED = 2
"""Epochs within which shares are even again."""
EVEN = 0.1
"""How far a share may be from the even one, of 1, to be called even."""
SLOWED = f"replicas.disturbance={{workers: [1], factor: {FACTOR}, epochs: [{FIRST}, {LAST}]}}"
SLEEPING = (
    'model.components.0={block: "python:sleeping_blocks.Sleeping", forward_ms: 10, backward_ms: 20, rows: 32, '
    "repeat: 2}"
)
CASES: dict[str, tuple[str, ...]] = {
    "slowed": (SLOWED,),
    "slowed, sleeping": (SLOWED, SLEEPING),
    "undisturbed": (),
}
WAYS = ("fixed", "dynamic_batch_size")
TIMES = {"undisturbed": 3}
"""How often a case is run in one repeat, if more than once: what shares cost undisturbed is small beside the noise."""


def measure(*overrides: str, repeats: int, run: Callable[..., Recorded] = recorded) -> dict[str, Any]:
    """The figures of all cases, `repeats` runs of each way of sharing."""
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {case: {way: [] for way in WAYS} for case in CASES}
    for _ in range(repeats):
        for case in chain.from_iterable([name] * TIMES.get(name, 1) for name in CASES):
            # Every other pair the other way round, so that a machine that gets slower favours neither.
            for way in WAYS if len(runs[case]["fixed"]) % 2 == 0 else reversed(WAYS):
                figures = figures_of(run(SPEC, f"replicas.balance={way}", *CASES[case], *overrides))
                runs[case][way].append(figures)
                epochs = ", ".join(f"{epoch_s:.2f}" for epoch_s in figures["epoch_s"])
                print(f"{case}, {way}: epochs of {epochs} s", flush=True)  # noqa: T201
    return {"spec": SPEC.name, "overrides": list(overrides), "runs": runs, **conclusions(runs)}


def figures_of(done: Recorded) -> dict[str, Any]:
    """Seconds of every epoch but the first, the shares after each epoch, and the final accuracy.

    An epoch is taken from the last mini-batch of the one before to its last one.
    """
    steps = [record for record in done.records if isinstance(record, StepRecord)]
    ends = [record.time_s for record in steps if record.epoch == int(record.epoch)]
    return {
        "epoch_s": [after - before for before, after in pairwise(ends)],
        "shares": [manifest.get("shares") for manifest in done.manifests],
        "accuracy": done.summary["accuracy"]["test"],
    }


def conclusions(runs: dict[str, dict[str, list[dict[str, Any]]]]) -> dict[str, Any]:
    """Medians of ratios within each repeat: how much faster an epoch is once shares have followed, and what following
    costs where nothing is slowed; whether shares came back; how far the final accuracies are apart."""
    fixed, dynamic = WAYS
    slowed = slice(ADAPTED - 2, LAST - 1)  # of `epoch_s`, which begins with epoch 2

    def ratios(case: str, epochs: slice) -> list[float]:
        return [
            sum(one["epoch_s"][epochs]) / sum(other["epoch_s"][epochs])
            for one, other in zip(runs[case][fixed], runs[case][dynamic], strict=True)
        ]

    return {
        "faster": median(ratios("slowed", slowed)),
        "faster_sleeping": median(ratios("slowed, sleeping", slowed)),
        "cost": median(1.0 / ratio for ratio in ratios("undisturbed", slice(None))) - 1.0,
        "even_again": all(
            _even(entry["shares"][LAST + SETTLED - 1])
            for case in ("slowed", "slowed, sleeping")
            for entry in runs[case][dynamic]
        ),
        "accuracy_apart": median(
            other["accuracy"] - one["accuracy"]
            for one, other in zip(runs["slowed"][fixed], runs["slowed"][dynamic], strict=True)
        ),
    }


def _even(shares: Sequence[int]) -> bool:
    even = sum(shares) / len(shares)
    return all(abs(share - even) <= EVEN * even for share in shares)


def main() -> None:
    given = settings(__doc__, repeats=3)
    write_results("balance", measure(*given.overrides, repeats=given.repeats))


if __name__ == "__main__":
    main()
