"""Every schedule on one graph: eight Transformer components that cost the same, on two stages.

    python -m benchmarks.schedules

Each repeat runs all nine schedules one after another, so that a ratio compares neighbours in time; a prediction is the
run's own, made before it trains.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.repeats import Runner, described, settings
from benchmarks.runs import summary_of, write_results

SPEC = Path(__file__).with_name("eight.yaml")
BACKPROPAGATION = "method=backpropagation"
SCHEDULES: dict[str, tuple[str, ...]] = {
    **{name: (f"pipeline.schedule={name}",) for name in ("sequential", "parallel_backward", "overlapped", "streamed")},
    **{
        name: (BACKPROPAGATION, f"pipeline.schedule={name}")
        for name in ("naive", "gpipe", "1f1b", "interleaved_1f1b", "zero_bubble")
    },
}
"""What makes each schedule of the spec: those of local losses first, then those of backpropagation."""


def measure(*overrides: str, repeats: int, run: Runner = summary_of) -> dict[str, Any]:
    """The figures of all schedules, `repeats` runs of each."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in SCHEDULES}
    for _ in range(repeats):
        for name, own in SCHEDULES.items():
            summary = run(SPEC, *own, *overrides)
            runs[name].append(
                {
                    key: summary[key]
                    for key in ("step_time_s", "predicted_step_time_s", "bubble", "predicted_bubble", "weights_sha256")
                }
            )
            print(f"{name}: {described(runs[name][-1])}", flush=True)  # noqa: T201
    return {"spec": SPEC.name, "overrides": list(overrides), "runs": runs}


def main() -> None:
    given = settings(__doc__, repeats=5)
    write_results("schedules", {"executor": "alray"} | measure(*given.overrides, repeats=given.repeats))


if __name__ == "__main__":
    main()
