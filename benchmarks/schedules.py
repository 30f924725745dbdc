"""Every schedule on four networks, on two stages, with what each run predicted of itself.

    python -m benchmarks.schedules

Each repeat runs all schedules of a network one after another, so that a ratio compares neighbours in time; a prediction
is that of the run, made before it trains.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alray.planning.schedules.table import SCHEDULES as TABLE
from benchmarks.runs import Runner, described, settings, summary_of, write_results

SPEC = Path(__file__).with_name("eight.yaml")
LAPTOP = Path(__file__).parents[1] / "specs" / "laptop"
SCHEDULES: dict[str, tuple[str, ...]] = {
    name: (*(() if schedule.local_losses else ("method=backpropagation",)), f"pipeline.schedule={name}")
    for name, schedule in TABLE.items()
    if not schedule.one_stage
}
"""What makes each schedule of a spec: those of local losses first, then those of backpropagation."""
STEPS = "run={steps: 70, evaluate_every: null, checkpoint: null}"
TWO_STAGES = ("pipeline.stages=2", "pipeline.partition=uniform", STEPS)
OTHERS: dict[str, tuple[Path, tuple[str, ...]]] = {
    "twelve linear layers": (LAPTOP / "equal_components.yaml", TWO_STAGES),
    "the race's Transformer": (
        LAPTOP / "transformer_docstrings.yaml",
        ("model.components.1.repeat=3", *TWO_STAGES),
    ),
    "an uneven VGG": (
        SPEC.with_name("uneven.yaml"),
        ("pipeline.partition=uniform", "pipeline.micro_batch_norm=accept"),
    ),
}
"""Further networks, whose predictions are counted with those of the eight Transformer components."""
FIRST = "eight Transformer components"
NETWORKS = (FIRST, *OTHERS)
KEPT = ("step_time_s", "predicted_step_time_s", "bubble", "predicted_bubble", "weights_sha256")


def measure(*overrides: str, repeats: int, spec: Path = SPEC, run: Runner = summary_of) -> dict[str, Any]:
    """The figures of all schedules, `repeats` runs of each."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in SCHEDULES}
    for _ in range(repeats):
        for name, own in SCHEDULES.items():
            summary = run(spec, *own, *overrides)
            runs[name].append({key: summary[key] for key in KEPT})
            print(f"{name}: {described(runs[name][-1])}", flush=True)  # noqa: T201
    return {"spec": spec.name, "overrides": list(overrides), "runs": runs}


def main(run: Runner = summary_of) -> None:
    given = settings(__doc__, repeats=3)
    eight = measure(*given.overrides, repeats=given.repeats, run=run)
    write_results("schedules", eight)
    networks = {FIRST: eight}
    for name, (spec, overrides) in OTHERS.items():
        networks[name] = measure(*overrides, *given.overrides, repeats=given.repeats, spec=spec, run=run)
        write_results("predictions", networks)  # now, since the next network may fail


if __name__ == "__main__":
    main()
