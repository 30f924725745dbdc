"""Predicted over measured steps of two busy stages and of two replicas, and where the difference lies.

    python -m benchmarks.two_busy [--repeats 5] [key=value ...]

Each repeat runs every network in every way, one after another. Each run predicts itself before it trains. In the end
each network is probed with one thread into a file, and two stages are planned with it for another machine (`--costs`).

`computing` is predicted over measured seconds in which a stage computes: below 1, what computes beside it slows it down
more than the probe found. `waiting` is measured minus predicted seconds of the rest of a step, a mean over the stages:
messages, averages and what a stage does besides its actions.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.runs import Runner, answer, settings, summary_of, write_results

FOLDER = Path(__file__).parent
_SHORT = ("run.steps=120", "run.evaluate_every=null", "run.stop_at=null", "run.checkpoint=null", "resources.threads=1")
_LOCAL = ("method={kind: associated_learning, label_dim: 64}",)
_BACKPROPAGATION = ("method=backpropagation",)
_ONE = ("pipeline.stages=1", "pipeline.partition=auto", "pipeline.schedule=auto")
_TWO = ("pipeline.stages=2", "pipeline.partition=auto")
NETWORKS = {"mlp": FOLDER / "crossover_mlp.yaml", "vgg": FOLDER / "replicas.yaml", "equal": FOLDER / "balanced.yaml"}
STREAMED = "streamed, two stages"
WAYS = {
    "one stage": (*_BACKPROPAGATION, *_ONE, "replicas.count=1"),
    STREAMED: (*_LOCAL, *_TWO, "pipeline.schedule=streamed", "replicas.count=1"),
    "1f1b, two stages": (
        *_BACKPROPAGATION,
        *_TWO,
        "pipeline.schedule=1f1b",
        "pipeline.micro_batches=4",
        "pipeline.micro_batch_norm=accept",
        "replicas.count=1",
    ),
    "two replicas": (*_BACKPROPAGATION, *_ONE, "replicas.count=2"),
}


def given(way: str) -> tuple[str, ...]:
    """The overrides with which a network runs this way."""
    return (*_SHORT, *WAYS[way])


def figures(summary: dict[str, Any]) -> dict[str, float]:
    """Of a run's summary: `ratio`, `computing` and `waiting_s` as the module says, and the measured step."""
    measured_s, predicted_s = summary["step_time_s"], summary["predicted_step_time_s"]
    waited_s, predicted_wait_s = summary["bubble"] * measured_s, summary["predicted_bubble"] * predicted_s
    return {
        "step_time_s": measured_s,
        "ratio": predicted_s / measured_s,
        "computing": (predicted_s - predicted_wait_s) / (measured_s - waited_s),
        "waiting_s": waited_s - predicted_wait_s,
    }


def measure(*overrides: str, repeats: int, run: Runner = summary_of) -> list[dict[str, Any]]:
    """An entry for each run, in turns."""
    entries = []
    for repeat in range(repeats):
        for network, spec in NETWORKS.items():
            for way in WAYS:
                found = figures(run(spec, *given(way), *overrides))
                entries.append({"network": network, "way": way, "repeat": repeat, **found})
                print(described(entries[-1]), flush=True)  # noqa: T201
    return entries


def elsewhere(*overrides: str) -> dict[str, float]:
    """Predicted seconds of two streamed stages of each network from costs in a file, as of another machine."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for network, spec in NETWORKS.items():
            asked, file = (str(spec), *given(STREAMED), *overrides), str(Path(folder) / f"{network}.json")
            answer("probe", *asked, "--output", file)
            found[network] = answer("plan", *asked, "--on", "2xcpu", "--costs", file)["predicted_step_time_s"]
    return found


def described(entry: dict[str, Any]) -> str:
    return (
        f"{entry['network']}, {entry['way']}: {1e3 * entry['step_time_s']:.2f} ms, predicted/measured "
        f"{entry['ratio']:.3f}, computing {entry['computing']:.3f}, waiting {1e3 * entry['waiting_s']:+.2f} ms"
    )


def main() -> None:
    asked = settings(__doc__, repeats=5)
    entries = measure(*asked.overrides, repeats=asked.repeats)
    planned = elsewhere(*asked.overrides)
    for way in WAYS:
        own = [entry for entry in entries if entry["way"] == way]
        errors = [abs(entry["ratio"] - 1) for entry in own]
        print(  # noqa: T201
            f"{way}: predicted/measured {median(entry['ratio'] for entry in own):.3f}, error {median(errors):.1%}, "
            f"nine in ten within {quantiles(errors, n=10, method='inclusive')[-1]:.1%}, "
            f"{sum(entry['ratio'] < 1 for entry in own) / len(own):.0%} below 1"
        )
    for network, seconds in planned.items():
        run_s = median(
            entry["step_time_s"] for entry in entries if (entry["network"], entry["way"]) == (network, STREAMED)
        )
        print(f"{network}, two stages planned from a file: {seconds / run_s:.3f} of the run")  # noqa: T201
    write_results("two_busy", {"runs": entries, "planned_from_a_file_s": planned})


if __name__ == "__main__":
    main()
