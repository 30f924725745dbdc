"""Two one-thread stages, streamed, beside the same network on one thread and on two threads of one process.

    python -m benchmarks.streamed

Each repeat runs all three one after another, so that a ratio compares neighbours in time. Step times are medians after
warm-up; the prediction is made by each streamed run itself, before it trains.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from benchmarks.runs import summary_of, write_results

SPEC = Path(__file__).with_name("balanced.yaml")
REPEATS = 5


def main() -> None:
    one_stage = ("pipeline.schedule=sequential", "pipeline.partition=auto", "pipeline.stages=1")
    repeats = []
    for _ in range(REPEATS):
        streamed = summary_of(SPEC)
        one_thread = summary_of(SPEC, *one_stage)
        two_threads = summary_of(SPEC, *one_stage, "resources.threads=2")
        repeats.append(
            {
                "streamed_s": streamed["step_time_s"],
                "predicted_s": streamed["predicted_step_time_s"],
                "sequential_s": one_thread["step_time_s"],
                "two_threads_s": two_threads["step_time_s"],
                "bubble": streamed["bubble"],
                "same_bits": streamed["weights_sha256"] == one_thread["weights_sha256"],
            }
        )
        print(repeats[-1], flush=True)  # noqa: T201
    write_results(
        "streamed",
        {
            "spec": SPEC.name,
            "repeats": repeats,
            "over_sequential": median(entry["sequential_s"] / entry["streamed_s"] for entry in repeats),
            "over_two_threads": median(entry["two_threads_s"] / entry["streamed_s"] for entry in repeats),
            "predicted_over_measured": median(entry["predicted_s"] / entry["streamed_s"] for entry in repeats),
        },
    )


if __name__ == "__main__":
    main()
