"""The laws of the schedules of local losses, on sixteen stages that only sleep: F = 20 ms, B = 40 ms.

    python -m benchmarks.laws

The blocks have no parameters and sleep in proportion to rows, so sixteen stages fit on any machine; what is left beside
their sleep is what alray itself takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from alray.core.run_folder.records import Record, StageRecord
from alray.planning.prediction.program import Program
from alray.planning.prediction.simulate import unhindered_steps
from alray.planning.schedules.durations import Durations
from alray.planning.schedules.table import SCHEDULES
from benchmarks.runs import Recorded, described, recorded, settings, write_results

SPEC = Path(__file__).with_name("sleeping.yaml")
STAGES = 16
FORWARD_S, BACKWARD_S = 0.020, 0.040
STEPS = {"streamed": 120, "overlapped": 50, "parallel_backward": 50, "sequential": 30}
"""Mini-batches of each run; the first ten of each are not counted."""
ALLOWED = {"streamed": 0.03, "overlapped": 0.05, "parallel_backward": 0.05, "sequential": 0.05}
"""How far from its law a schedule may be."""
FORMULAS = {
    "streamed": "max(F+B)",
    "overlapped": "max(F_0+..+F_s+B_s)",
    "parallel_backward": "max(F_0+..+F_s+L_s)+max(B-L)",
    "sequential": "sum(F+B)",
}
"""The laws as the page shows them. F, L and B are the seconds of a stage's actions; B includes L and U."""


def law_s(schedule: str) -> float:
    """Seconds of a mini-batch by the schedule's law, of the sleep alone."""
    return _without_messages_s(schedule, [FORWARD_S] * STAGES, [BACKWARD_S] * STAGES)


def clocks_law_s(schedule: str, records: Sequence[Record]) -> float:
    """The same of F and B as the stages' clocks had them in a run: beside the sleep, a component of Associated
    Learning has its label chain to compute and its weights to update, and the mini-batch has to be made."""
    forward_s, backward_s = [0.0] * STAGES, [0.0] * STAGES
    for stage in range(STAGES):
        own = [each for each in records if isinstance(each, StageRecord) and each.stage == stage and not each.warm_up]
        steps = max(1, sum(each.steps for each in own))
        forward_s[stage] = sum(each.data_s + each.forward_s for each in own) / steps
        backward_s[stage] = sum(each.backward_s + each.update_s for each in own) / steps
    return _without_messages_s(schedule, forward_s, backward_s)


def _without_messages_s(schedule: str, forward_s: Sequence[float], backward_s: Sequence[float]) -> float:
    program = Program.of_schedule(SCHEDULES[schedule], STAGES, 64)
    return float(unhindered_steps(program, Durations({"F": forward_s, "B": backward_s}))[0])


def measure(*overrides: str, repeats: int, run: Callable[..., Recorded] = recorded) -> dict[str, Any]:
    """The figures of the four schedules, `repeats` runs of each."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in STEPS}
    for _ in range(repeats):
        for name, steps in STEPS.items():
            left = run(SPEC, f"pipeline.schedule={name}", f"run.steps={steps}", *overrides)
            figures = {key: left.summary[key] for key in ("step_time_s", "predicted_step_time_s", "weights_sha256")}
            runs[name].append({**figures, "clocks_law_s": clocks_law_s(name, left.records)})
            told = f"law {1e3 * law_s(name):.0f} ms, by the clocks {1e3 * runs[name][-1]['clocks_law_s']:.1f} ms"
            print(f"{name}: {described(figures)}; {told}", flush=True)  # noqa: T201
    laws = {name: {"formula": FORMULAS[name], "law_s": law_s(name), "allowed": ALLOWED[name]} for name in STEPS}
    return {"spec": SPEC.name, "overrides": list(overrides), "stages": STAGES, "laws": laws, "runs": runs}


def main() -> None:
    given = settings(__doc__, repeats=3)
    write_results("laws", measure(*given.overrides, repeats=given.repeats))


if __name__ == "__main__":
    main()
