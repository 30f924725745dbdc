"""Bounds that no true measurement exceeds, and the warning that a report shows where a measured time does.

Two bounds hold for every run, whatever its schedule. n devices are at most n times as fast as one device. And training
takes at least as long as its busiest stage computes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from alray.core.run_folder.records import EventRecord
from alray.planning.prediction.plan import Plan
from alray.report.attempts import Attempt, Timed
from alray.report.spread import spread
from alray.report.text import number, seconds
from alray.runtime.probe.other_programs import measured_beside, trained_beside

TOLERANCE = 0.02
"""How far a figure may exceed a bound without a warning, as a share of the bound: times of different runs and stages
vary."""
_STANDARD_ERRORS = 3
"""By how many standard errors the mean of a few step times may be too small by chance."""


def impossible_speed_up(speed_up: float, devices: float, of: str) -> str | None:
    """The warning about a speed-up that is larger than the number of devices allows; None if it is possible.

    Args:
        speed_up: samples per second, divided by those of the run with fewer devices.
        devices: number of devices, divided by that of the run with fewer devices.
        of: what has this speed-up.
    """
    if speed_up <= devices * (1.0 + TOLERANCE):
        return None
    return (
        f"{of}: a speed-up of {number(speed_up)} by {number(devices)} times the devices is above the number of "
        "devices: do not compare these times, for one of them leaves work out or was measured on a busier machine"
    )


def doubts_of(timed: Timed, stages: int) -> list[str]:
    """The warning about times of a run in which it trained for less time than its busiest stage computed; none if all
    times are possible.

    Several mini-batches are under way at once, so a stage computed those whose times count at another time, when it may
    have been slower for a while. Over a few mini-batches it can seem to compute for longer than they took. So the mean
    step time has to be too small by more than their spread explains, and fewer than three show no spread.

    Args:
        timed: its mini-batches after warm-up.
    """
    busiest = max(range(stages), key=lambda stage: timed.computing_s(stage) or 0.0)
    computing_s, step_s = timed.computing_s(busiest), spread(timed.step_times_s)
    if computing_s is None or step_s is None or step_s.deviation is None or not timed.of_the_same:
        return []
    at_most_s = step_s.mean + _STANDARD_ERRORS * step_s.deviation / math.sqrt(step_s.runs)
    if at_most_s >= computing_s * (1.0 - TOLERANCE):
        return []
    of_replicas: Counter[tuple[int, int]] = Counter()
    for record in timed.records:
        of_replicas[record.stage, record.replica] += record.steps
    num_steps = max(of_replicas.values())
    return [
        f"{seconds(num_steps * step_s.mean)} of training are fewer than the {seconds(num_steps * computing_s)} that "
        f"stage {busiest} computed: do not rely on the times, the throughput and the bubble of this run"
    ]


def beside_others(attempts: Sequence[Attempt], plan: Plan) -> list[str]:
    """What other programs did to the times of a run: to the prediction, and to what was measured with this plan."""
    events = [record for each in attempts if each.ran(plan) for record in each.records]
    taken = max((each.taken_processors or 0.0 for each in events if isinstance(each, EventRecord)), default=0.0)
    found = (measured_beside(plan.costs.taken_processors), trained_beside(taken))
    return [sentence for sentence in found if sentence is not None]
