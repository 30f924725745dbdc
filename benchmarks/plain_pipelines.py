"""Two stages by alray as users run it, and by a plain script of torch alone.

    python -m benchmarks.plain_pipelines

Pipelines of backpropagation beside torch's pipelining, and streamed DGL beside two processes with a queue. Each repeat
runs both one after another, so that a ratio compares neighbours in time: the same network, mini-batch and optimizer,
one thread each. `benchmarks.engines` compares the executors alone, over edges of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.runs import Runner, plain_run, settings, summary_of, torch_run, write_results

HERE = Path(__file__).parent
SPECS = (HERE / "eight.yaml", HERE.parent / "specs" / "laptop" / "equal_components.yaml")
STAGES = 2
SCHEDULES = ("gpipe", "1f1b", "zero_bubble")  # of `plain_pipeline.CLASSES`, which loads torch's compiler
PIPELINE = ("method={kind: backpropagation}", f"pipeline.stages={STAGES}", "pipeline.micro_batches=8")
WAYS = {name: (*PIPELINE, f"pipeline.schedule={name}") for name in SCHEDULES} | {
    "streamed": ("method=decoupled_greedy",)
}
"""The overrides of each."""


def plain(way: str, spec: Path, *overrides: str) -> float:
    """Seconds of a mini-batch of `benchmarks.plain_pipeline` or `benchmarks.plain_streamed`, in separate processes."""
    if way == "streamed":
        return float(plain_run("benchmarks.plain_streamed", spec, *overrides)["step_time_s"])
    return float(torch_run("benchmarks.plain_pipeline", STAGES, spec, *overrides)["step_time_s"])


def measure(*overrides: str, repeats: int, run: Runner = summary_of, beside: Callable[..., float] = plain) -> None:
    """For each network and way: seconds of a mini-batch of both, `repeats` times; written after each of them."""
    found: dict[str, Any] = {}
    for spec in SPECS:
        for way, of_way in WAYS.items():
            chosen = (*of_way, *overrides)
            entries = []
            for _ in range(repeats):
                entries.append({"alray_s": run(spec, *chosen)["step_time_s"], "plain_s": beside(way, spec, *chosen)})
                print(spec.stem, way, entries[-1], flush=True)  # noqa: T201
            found[f"{spec.stem}, {way}"] = {"repeats": entries}
            write_results("plain_pipelines", found)


def main() -> None:
    given = settings(__doc__, repeats=7)
    measure(*given.overrides, repeats=given.repeats)


if __name__ == "__main__":
    main()
