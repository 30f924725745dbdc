"""Every schedule of one network on two stages, with what each run predicted of itself.

    python -m benchmarks.schedules

Each repeat runs all schedules one after another, so that a ratio compares neighbours in time; a prediction is that of
the run, made before it trains.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alray.planning.schedules.table import SCHEDULES as TABLE
from benchmarks.runs import described, settings, summary_of, write_results

SPEC = Path(__file__).with_name("eight.yaml")
SCHEDULES: dict[str, tuple[str, ...]] = {
    name: (*(() if schedule.local_losses else ("method=backpropagation",)), f"pipeline.schedule={name}")
    for name, schedule in TABLE.items()
    if not schedule.one_stage
}
"""What makes each schedule of a spec: those of local losses first, then those of backpropagation."""
KEPT = ("step_time_s", "predicted_step_time_s", "bubble", "predicted_bubble", "weights_sha256")


def measure(*overrides: str, repeats: int) -> dict[str, Any]:
    """The figures of all schedules, `repeats` runs of each."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in SCHEDULES}
    for _ in range(repeats):
        for name, own in SCHEDULES.items():
            summary = summary_of(SPEC, *own, *overrides)
            runs[name].append({key: summary[key] for key in KEPT})
            print(f"{name}: {described(runs[name][-1])}", flush=True)  # noqa: T201
    return {"spec": SPEC.name, "overrides": list(overrides), "runs": runs}


def main() -> None:
    given = settings(__doc__, repeats=3)
    write_results("schedules", measure(*given.overrides, repeats=given.repeats))


if __name__ == "__main__":
    main()
