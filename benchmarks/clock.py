"""What a stage's clock costs: the same short training with it, and with one that does nothing.

    python -m benchmarks.clock

The two trainings of a pair run in this one process, without Ray, in turns of a mini-batch each, so that whatever else
the machine does falls on both alike; they take the first turn in turn. The writing of the clock's records counts as its
cost. The quickstart's small network with a stage for each of its components has the most to measure for the least work.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.core.run_folder.records import StageRecord, Writer
from alray.runtime.channel.in_process import Queue
from alray.runtime.channel.inbox import Inbox
from alray.runtime.device import devices
from alray.runtime.options import Options
from alray.runtime.planner.planning import Planner
from alray.runtime.runner.driver import assignments
from alray.runtime.stage.assemble import assemble_loop, network_for
from alray.runtime.stage.assignment import Assignment, Start
from alray.runtime.stage.clock import Clock
from alray.runtime.stage.leader import Control
from alray.runtime.stage.ports import Ports
from alray.runtime.stage.profiler import Profiler
from alray.runtime.stage.telemetry import Telemetry
from alray.studies.confidence import of_mean
from benchmarks.runs import write_results

SPEC = Path(__file__).parents[1] / "specs" / "quickstart.yaml"
PAIRS = 20
STEPS = 100
_OVERRIDES = ("pipeline.stages=4", "pipeline.partition=uniform")
_NOTHING = nullcontext()


class SilentClock(Clock):
    """Measures nothing and makes no record."""

    def measure(self, kind: str, text: str, step: int) -> AbstractContextManager[None]:
        return _NOTHING

    def pause(self, activity: str) -> AbstractContextManager[None]:  # type: ignore[override]
        return _NOTHING

    def step_done(self) -> None:
        pass

    def window_due(self, step: int) -> bool:
        return False


class Training:
    """All stages of one training, in turns; the seconds it took so far."""

    def __init__(self, assignments: Sequence[Assignment], writer: Writer, clock: type[Clock]) -> None:
        edges = [Queue(f"{stage}->{stage + 1}", assignments[0].plan.in_flight) for stage in range(len(assignments) - 1)]
        network = network_for(assignments[0])
        self.seconds = 0.0
        self._writer = writer
        self.loops = [
            assemble_loop(
                assignment,
                network=network,
                device=devices.pick(assignment.device_kind),
                ports=Ports(
                    up_from=[Inbox(edges[stage - 1]) if stage > 0 else None],
                    up_to=[edges[stage] if stage < len(edges) else None],
                ),
                clock=clock(started_wall_s=assignment.started_wall_s, start_step=0),
                control=Control(),
                emit=self._take,
                profiler=Profiler((), assignment.trace, stages=len(assignments), device=torch.device("cpu")),
            )
            for stage, assignment in enumerate(assignments)
        ]
        self._turns = [loop.run() for loop in self.loops]

    @property
    def step(self) -> int:
        """Mini-batches that are through all stages."""
        return self.loops[-1].step

    def turn(self) -> None:
        """Every stage once: a mini-batch each, as soon as the pipeline is full."""
        began = time.perf_counter()
        for turn in self._turns:
            next(turn)
        self.seconds += time.perf_counter() - began

    def _take(self, telemetry: Telemetry) -> None:
        """As the driver does: records are written, losses are the same with and without a clock."""
        if isinstance(telemetry, StageRecord):
            self._writer.write(telemetry)


def measure_pair(assignments: Sequence[Assignment], folder: Path, *, steps: int, clock_first: bool) -> dict[str, float]:
    """Seconds a mini-batch of both trainings, from the first one on."""
    writer = Writer(folder / "records.jsonl")
    with_clock = Training(assignments, writer, Clock)
    without = Training(assignments, writer, SilentClock)
    first, second = (with_clock, without) if clock_first else (without, with_clock)
    while with_clock.step < steps:
        first.turn()
        second.turn()
        first, second = second, first
    writer.close()
    return {"with_s": with_clock.seconds / steps, "without_s": without.seconds / steps}


def measure(spec: Path, overrides: Sequence[str], folder: Path, *, pairs: int, steps: int) -> dict[str, Any]:
    """`pairs` pairs of trainings of `steps` mini-batches, and the interval of the ratio of their times."""
    # No cut comes before the last turn is taken.
    ends = [f"run={{steps: {2 * steps + 10}, evaluate_every: null, checkpoint: null}}"]
    loaded = load_spec(spec, [*overrides, *ends])
    code = UserCode(spec.resolve().parent, allow_elsewhere=False)
    planner = Planner.open(loaded.spec, code, Options(inline=True))
    plan = planner.plan(planner.costs(probe=False))
    own = assignments(planner.workload, plan, Start(), folder, time.time(), Options())
    found = []
    with devices.configured(loaded.spec.resources.threads, loaded.spec.run.deterministic, planner.workload.device):
        for number in range(pairs):
            gc.collect()
            found.append(measure_pair(own, folder, steps=steps, clock_first=number % 2 == 0))
            print(found[-1], file=sys.stderr, flush=True)  # noqa: T201
    ratio = of_mean([pair["with_s"] / pair["without_s"] for pair in found])
    assert ratio is not None, "three pairs at least"
    interval = {"low": ratio.at(0.025), "mean": ratio.mean, "high": ratio.at(0.975)}
    return {"spec": spec.name, "stages": plan.stages, "steps": steps, "pairs": found, "ratio": interval}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        result = measure(SPEC, _OVERRIDES, Path(folder), pairs=PAIRS, steps=STEPS)
    ratio = result["ratio"]
    print(f"with the clock {ratio['mean']:.4f} times as long, 95 % interval {ratio['low']:.4f} to {ratio['high']:.4f}")  # noqa: T201
    write_results("clock", result)


if __name__ == "__main__":
    main()
