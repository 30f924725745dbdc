"""Partition and choice on a network whose components cost very different times.

    python -m benchmarks.uneven

Runs every schedule of local losses with every cut of `benchmarks/uneven.yaml` on one stage and on two, all of them in
each repeat: is the plan's choice the best one, and how much faster is the automatic cut than `uniform`?
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from alray.planning.prediction.search import every_cut
from benchmarks.runs import Comparer, Runner, comparison_of, described, settings, summary_of, write_results

SPEC = Path(__file__).with_name("uneven.yaml")
COMPONENTS = 4
LOCAL = ("streamed", "overlapped", "parallel_backward", "sequential")
CHOICES: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("streamed", (COMPONENTS,)),
    *((schedule, cut) for schedule in LOCAL for cut in every_cut(COMPONENTS, 2)),
)
"""Schedule and cut of each run. On one stage there is nothing to overlap, so one schedule stands for all."""


def name_of(schedule: str, cut: tuple[int, ...]) -> str:
    return f"{schedule} {list(cut)}"


def measure(
    *overrides: str, repeats: int, run: Runner = summary_of, compare: Comparer = comparison_of
) -> dict[str, Any]:
    """The figures of all choices, `repeats` runs of each, and the choice of a plan made before each repeat."""
    runs: dict[str, list[dict[str, Any]]] = {name_of(*choice): [] for choice in CHOICES}
    chosen = []
    for _ in range(repeats):
        rows = [row for row in compare(SPEC, *overrides) if row["stages"] <= 2]
        chosen.append(name_of(rows[0]["schedule"], tuple(rows[0]["partition"])))
        for schedule, cut in CHOICES:
            own = f"pipeline.schedule={schedule}", f"pipeline.partition={list(cut)}", f"pipeline.stages={len(cut)}"
            summary = run(SPEC, *own, *overrides)
            figures = {key: summary[key] for key in ("step_time_s", "predicted_step_time_s", "weights_sha256")}
            runs[name_of(schedule, cut)].append(figures)
            print(f"{name_of(schedule, cut)}: {described(figures)}", flush=True)  # noqa: T201
    return {"spec": SPEC.name, "overrides": list(overrides), "runs": runs, **conclusions(runs, chosen)}


def conclusions(runs: dict[str, list[dict[str, Any]]], chosen: list[str]) -> dict[str, Any]:
    """The measured best by its median, what the plans chose, and the ratios within each repeat.

    over_best: the chosen one's step over the best one's. over_uniform: the step of the even cut, streamed, over that
    of the cut the plan chose, streamed.
    """
    steps = {name: [entry["step_time_s"] for entry in entries] for name, entries in runs.items()}
    best = min(steps, key=lambda name: median(steps[name]))
    uniform = steps[name_of("streamed", (COMPONENTS // 2, COMPONENTS // 2))]
    return {
        "chosen": chosen,
        "best": best,
        "over_best": [steps[name][place] / steps[best][place] for place, name in enumerate(chosen)],
        "over_uniform": [uniform[place] / steps[name][place] for place, name in enumerate(chosen)],
    }


def main() -> None:
    given = settings(__doc__, repeats=3)
    write_results("uneven", measure(*given.overrides, repeats=given.repeats))


if __name__ == "__main__":
    main()
